"""Reads the calls of the Engine's API: addresses, callers, bodies, and the Engine's answers about containers."""
