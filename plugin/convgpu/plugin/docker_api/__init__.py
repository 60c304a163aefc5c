"""Docker's plugin protocol: volume driver and authorization."""
