"""`convgpu doctor`: proves that limits hold on this host."""
