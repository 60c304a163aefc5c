"""Answers the hooks: one socket for each container."""
