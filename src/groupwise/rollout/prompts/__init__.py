"""Prompts as token ids: templates, and the memory that says how much of an attempt's past they show."""
