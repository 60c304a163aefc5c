"""The names of callers of the Engine's API."""

from typing import Final

# Callers over the Engine's own socket, which have no name.
LOCAL: Final = "local"


def caller(name: str, method: str) -> str:
    """Return the caller's name: the common name of a certificate, or `local`, which no certificate can claim to be.

    Args:
        name: the Engine's `User`.
        method: its `UserAuthNMethod`; empty without authentication.
    """
    if not name and not method:
        return LOCAL
    return f"CN={name}" if name in {"", LOCAL} else name
