"""Processes: looks at them that are bounded in time, their cgroups, and what they wait for."""
