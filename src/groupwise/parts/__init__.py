"""What a part is: slots, parts with memory, catalogues, and checks of parts that come from outside."""
