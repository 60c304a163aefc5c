"""`convgpu-runtime`: injects limits into containers without a ConvGPU volume, as an OCI runtime or by a CDI device."""
