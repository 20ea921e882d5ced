"""Our own engine behind HTTP, on the routes of a vLLM server and two of its own."""
