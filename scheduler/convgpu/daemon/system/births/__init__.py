"""The births of processes, as the kernel tells of them."""
