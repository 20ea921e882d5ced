"""Engines at the other end of HTTP: the client, its replicas, servers as child processes, and a server of our own."""
