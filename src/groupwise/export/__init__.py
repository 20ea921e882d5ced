"""Out again: a run's policy as a folder that transformers and vLLM load, with a card that says what it is."""
