"""Bandwidth as people write it. Pure."""

import re
from typing import Final

VARIABLE: Final = "CONVGPU_NETWORK"
"""The variable of a container that asks for a share of the node's network."""
LARGEST: Final = 10**12  # bit/s
SMALLEST: Final = 10**6
_PATTERN: Final = re.compile(r"([0-9]{1,7})\s*([kmg])(?:bit(?:/s)?|bps)?", re.ASCII | re.IGNORECASE)
_BITS: Final = {"k": 10**3, "m": 10**6, "g": 10**9}


def parse_rate(text: str) -> int:
    """Return the bit/s of `2gbit`, `2g`, `500mbit` or `64000kbit`.

    Raises:
        ValueError: another form, or outside of what can be held to; says which there are.
    """
    found = _PATTERN.fullmatch(text.strip())
    bits = int(found[1]) * _BITS[found[2].lower()] if found else 0
    if not SMALLEST <= bits <= LARGEST:
        raise ValueError(f"{text!r} is no bandwidth: write 2gbit or 500mbit, from 1mbit to 1000gbit")
    return bits


def format_rate(bits: int) -> str:
    """Return a bandwidth in the largest unit in which it is whole."""
    for unit, size in (("gbit", 10**9), ("mbit", 10**6)):
        if bits % size == 0:
            return f"{bits // size}{unit}"
    return f"{bits // 1000}kbit"
