"""Prompts and answers from a file, a folder or a data set of somebody's own."""
