"""GPUs: NVML, simulated devices, the size of contexts, and settling memory."""
