"""The operating system: files, /proc, the log."""
