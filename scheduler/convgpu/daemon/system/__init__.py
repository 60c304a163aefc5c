"""The operating system: files put in place atomically, the lock of the directory, /proc, and the log."""
