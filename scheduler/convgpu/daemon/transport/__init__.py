"""Transport: connections with frames on UNIX sockets, and the page shared with a process."""
