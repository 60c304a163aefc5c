"""Which waiting allocation is served next; pure."""
