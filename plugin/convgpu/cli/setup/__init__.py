"""Commands that set up a host, or change what is in force on it."""
