"""Processes with a connection, without one for a while, and of an earlier scheduler."""
