"""Facts that lie in files of the host: device nodes, and the owners of containers."""
