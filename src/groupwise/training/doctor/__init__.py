"""What `groupwise doctor` finds out with torch: this machine's GPUs, a self-test of the trainer, the size of a run."""
