"""Sizes of memory as people write them."""

from __future__ import annotations

TYPE_CHECKING = False  # `re` and `typing` are not imported on the quick path of `convgpu run` (decision 143)
if TYPE_CHECKING:
    from typing import Final

MIB: Final = 1 << 20

FORMS: Final = "write it as Docker does: 512m, 2g, 1.5G, 2GiB"

_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_IEC: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def parse_size(text: str) -> int:
    """Return the bytes that `text` names.

    The grammar is that of `docker run --memory` (RAMInBytes of docker/go-units). Units are binary and their case does
    not matter: `2g`, `2 GB` and `2GiB` are all 2 * 2**30. A part of a byte is dropped.

    Raises:
        ValueError: the text is of no known form, or not positive; says which forms there are.
    """
    lowered = text.strip().lower()
    rest = lowered.removesuffix("b").removesuffix("i")
    unit = rest[-1:] if rest[-1:] in _UNITS else ""
    whole, point, part = rest.removesuffix(unit).removesuffix(" ").partition(".")
    if not (lowered.isascii() and _is_number(whole, 15) and (_is_number(part, 9) or not point)):
        raise ValueError(f"{text!r} is not a size: {FORMS}")
    size: int = int(whole + part) * _UNITS[unit] // 10 ** len(part)
    if size == 0:
        raise ValueError(f"{text!r} is no memory at all: a size must be greater than zero; {FORMS}")
    return size


def _is_number(text: str, most: int) -> bool:
    return text.isdecimal() and len(text) <= most


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
