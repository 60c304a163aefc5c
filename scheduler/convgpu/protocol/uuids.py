"""UUIDs of devices: NVML's text form in the ledger, 16 bytes (CUuuid) on the wire."""

import uuid
from typing import Final

_PREFIX: Final = "GPU-"


def uuid_bytes(text: str) -> bytes:
    """Return the bytes of `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` (or `MIG-...`).

    Raises:
        ValueError: another form.
    """
    return uuid.UUID(text.partition("-")[2]).bytes


def uuid_text(raw: bytes) -> str:
    """Return NVML's text form of a GPU's 16 bytes."""
    return f"{_PREFIX}{uuid.UUID(bytes=raw)}"
