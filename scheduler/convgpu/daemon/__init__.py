"""The scheduler daemon, convgpud: performs what the core decides."""
