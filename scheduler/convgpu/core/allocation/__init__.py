"""Allocations: their answers, their serving order, and the reclaiming of unused memory before one has to wait."""
