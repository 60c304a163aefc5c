"""Reads what a call of the Engine's API asks for."""
