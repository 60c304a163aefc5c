"""Which allocation is served, in which order, and why one waits."""
