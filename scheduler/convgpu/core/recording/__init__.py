"""Recordings: the events of a machine and its steps as lines of text, and their replay; pure."""
