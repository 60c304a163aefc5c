"""Compares what NVML counts with the ledger, and acts on the difference."""
