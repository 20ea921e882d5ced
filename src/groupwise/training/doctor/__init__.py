"""What `groupwise doctor` looks at with torch: this machine, a trainer in small, the size of a run."""
