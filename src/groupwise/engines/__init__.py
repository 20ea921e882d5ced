"""Token ids in, token ids out: the engine protocol, its implementations, and a suite that any can be put to."""
