"""Messages about memory that can leave a device: between processes and the scheduler, and the porter and both."""
