"""The static-cache engine: against `generate` of transformers, against vLLM, and taken apart."""
