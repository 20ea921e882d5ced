"""The command line: one file per command. `arguments` reads the input, `screen` and `live` print."""
