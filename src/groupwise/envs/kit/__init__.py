"""Building blocks of environments: task sets, words, draws, questions, search, optional packages."""
