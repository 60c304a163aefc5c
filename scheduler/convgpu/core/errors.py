"""Errors of the core. A rejected allocation is a value, not an error: `events.Reject`."""


class InvariantBrokenError(Exception):
    """The ledger contradicts itself or an invariant (docs/architecture.md); a programming error, never a client's."""
