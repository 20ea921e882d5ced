"""Text from outside, read and shown safely: files, JSON, control characters, secrets."""
