"""Docker's volume-driver and authorization protocol, and the HTTP administration."""
