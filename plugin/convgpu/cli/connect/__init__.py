"""Connections to the Engine and the scheduler."""
