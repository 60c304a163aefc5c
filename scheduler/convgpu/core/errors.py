"""What the core raises. Refusals are values, not errors: `events.Reject`."""


class InvariantBrokenError(Exception):
    """The ledger contradicts itself or its rules (design, section 3); a programming error, never a client's."""
