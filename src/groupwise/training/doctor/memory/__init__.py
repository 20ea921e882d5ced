"""How much memory a run takes, counted before it is run: by a rehearsal on tensors that have shapes and no numbers."""
