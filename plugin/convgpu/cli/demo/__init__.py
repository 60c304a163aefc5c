"""`convgpu demo`: containers compete for a simulated GPU."""
