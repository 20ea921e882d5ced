"""The engine server: a process that samples for runs on other processes or machines."""
