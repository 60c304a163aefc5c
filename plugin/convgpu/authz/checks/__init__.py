"""What may be wrong with a container: one file for each kind of check."""
