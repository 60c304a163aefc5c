"""The server of the hooks: one socket for each container."""
