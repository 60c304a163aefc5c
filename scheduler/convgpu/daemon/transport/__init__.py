"""Sockets with frames, and the page shared with a process."""
