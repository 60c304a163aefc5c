"""The ledger and the machine around it, handle(event, now) -> effects; pure."""
