"""`convgpu-runtime`: containers that have no ConvGPU volume: by their OCI runtime, or by a CDI device."""
