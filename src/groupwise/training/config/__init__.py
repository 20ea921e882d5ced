"""What a run file says, decoded and checked before any work."""
