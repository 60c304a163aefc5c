"""`convgpu policy write`: a starting list for strict rules, from what ran on the host."""
