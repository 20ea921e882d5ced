"""The command line: a file for each command; `arguments` reads what they are given, `screen` and `live` print."""
