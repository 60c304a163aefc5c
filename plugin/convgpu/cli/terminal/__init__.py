"""Shared by all commands: options, output, errors, signals."""
