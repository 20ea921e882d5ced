"""Mathematical problems from publishers' files."""
