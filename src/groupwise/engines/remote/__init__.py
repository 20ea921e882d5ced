"""An engine at the other end of HTTP: its client, several servers as one, and what is said over the wire."""
