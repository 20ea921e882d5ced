"""The engine over any Hugging Face causal language model, and the keys and values that it keeps."""
