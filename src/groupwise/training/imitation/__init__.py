"""The supervised start of a run: the model learns to say what an expert said, or what recorded attempts said."""
