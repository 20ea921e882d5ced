"""The folder that a vLLM server has on its path: a plug-in for vLLM's weight transfer, and the entry point to it."""
