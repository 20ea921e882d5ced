"""What comes from outside (answers, files, texts, run folders) must not get in: it is read, never run."""
