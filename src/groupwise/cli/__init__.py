"""The command line: a file or a folder for each command; `arguments` reads what they are given, `terminal` prints."""
