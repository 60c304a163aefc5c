"""Containers: their volumes, folders and sockets, and reconciliation with the Engine's list."""
