"""Processes: looks at them that are bounded in time."""
