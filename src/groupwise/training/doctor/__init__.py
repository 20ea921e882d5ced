"""What a machine can run, and what a run would cost, before it is started."""
