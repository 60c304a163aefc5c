"""The stages of a start: the host is opened, the machine started, its containers restored, and its recovery ended."""
