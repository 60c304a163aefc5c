"""Facts about the host that lie in files: device nodes, owners of containers."""
