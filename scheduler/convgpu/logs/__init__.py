"""Format of log lines and the cause that each carries, of scheduler and plugin alike."""
