"""What holds for the repository as a whole: layers, sizes, names, catalogues, start-up time, documents."""
