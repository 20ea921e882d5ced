"""What environments are built with: panels, words, draws, progress, questions, answers, search, optional packages."""
