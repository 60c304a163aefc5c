"""Frames, messages, sizes and administration types; pure."""
