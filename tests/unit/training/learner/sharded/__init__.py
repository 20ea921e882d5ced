"""The learner in shares, on several processes of this machine."""
