"""The command line, convgpu."""
