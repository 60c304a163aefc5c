"""Sizes of memory as people write them."""

import re
from typing import Final

MIB: Final = 1 << 20

FORMS: Final = "write it as Docker does: 512m, 2g, 1.5G, 2GiB"

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
# The grammar of `docker run --memory` (RAMInBytes of docker/go-units).
_PATTERN: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)
_IEC: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def parse_size(text: str) -> int:
    """Return the bytes that `text` names.

    Units are binary and their case does not matter, as in `docker run --memory`: `2g`, `2 GB` and `2GiB` are all
    2 * 2**30. A part of a byte is dropped.

    Raises:
        ValueError: the text is of no known form, or not positive; says which forms there are.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: {FORMS}")
    number, unit = match.groups()
    whole, _, part = number.partition(".")
    size: int = int(whole + part) * _UNITS[unit.lower()] // 10 ** len(part)
    if size == 0:
        raise ValueError(f"{text!r} is no memory at all: a size must be greater than zero; {FORMS}")
    return size


def parse_share(text: str) -> int | None:
    """Return the percents of `50%`, a share of what a device has; None for a text that is no share.

    Raises:
        ValueError: it is a share, and not from 1% to 100%.
    """
    number, sign, rest = text.strip().partition("%")
    if not sign:
        return None
    if rest or not (number.isascii() and number.isdecimal() and 1 <= int(number[:4]) <= 100):
        raise ValueError(f"{text!r} is not a share: write whole percents from 1% to 100%")
    return int(number)


def format_size(size: int) -> str:
    """Return `size` bytes in the largest IEC unit that leaves a whole one, with at most two decimals."""
    for unit, name in _IEC:
        if size >= unit:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + name
    return f"{size}B"
