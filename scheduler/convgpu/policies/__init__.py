"""Choices as pure functions, one folder for each kind: a snapshot in, an order out."""
