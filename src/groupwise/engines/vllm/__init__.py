"""vLLM: its servers' flags, the plug-in that brings them weights, and vLLM in the trainer's own process."""
