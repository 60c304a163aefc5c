"""The database: what outlives a scheduler."""
