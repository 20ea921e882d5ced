"""What goes wrong (environments, disks, processes, files, parts) costs itself alone, and is said in one sentence."""
