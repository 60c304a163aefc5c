"""What follows from what NVML counts; pure. `daemon/audit` asks and acts."""
