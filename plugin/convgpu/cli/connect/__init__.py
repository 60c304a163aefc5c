"""How the command reaches the Engine and the scheduler."""
