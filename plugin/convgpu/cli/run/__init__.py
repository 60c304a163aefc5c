"""`convgpu run`: `docker run` with a limit."""
