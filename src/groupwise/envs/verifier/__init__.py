"""Judging answers in a process without rights."""
