"""Messages by which the scheduler asks a process what it holds, and follows its calls."""
