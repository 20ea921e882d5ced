"""Little worlds, data and servers that tests play with."""
