"""Where environments run: in this process or in workers, each call guarded."""
