"""The blocking client of the scheduler's admin.sock."""
