"""What the GPUs and their driver say: devices, contexts, memory that settles."""
