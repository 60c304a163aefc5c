"""Residency: which containers are on their cards, whose memory is out on the host, and who moves next; pure."""
