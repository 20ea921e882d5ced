"""The command line: one file per command. `arguments` reads what they are given, `screen` prints."""
