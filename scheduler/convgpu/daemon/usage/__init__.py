"""Samples of the usage of GPUs, as figures over time."""
