"""The engine for a GPU: responses decode in the lanes of a cache that never moves, under CUDA graphs."""
