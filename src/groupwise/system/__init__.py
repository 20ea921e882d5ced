"""What everything stands on: errors, text and secrets, files, processes and the sandbox."""
