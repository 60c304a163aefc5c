"""The name of who calls the Engine's API."""

from typing import Final

# Callers over the Engine's own socket, where nobody has a name.
LOCAL: Final = "local"


def caller(name: str, method: str) -> str:
    """Return the caller's name: the common name of a certificate, or `local`, which no certificate can claim to be.

    Args:
        name: the Engine's `User`.
        method: its `UserAuthNMethod`; empty where nobody proved anything.
    """
    if not name and not method:
        return LOCAL
    return f"CN={name}" if name in {"", LOCAL} else name
