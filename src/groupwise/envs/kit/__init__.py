"""What environments are built with: panels, words, keyed draws, progress, questions and answers."""
