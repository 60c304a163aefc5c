"""Simulation of the jobs of a GPU cluster, event by event; pure. docs/simulation.md says what it assumes."""
