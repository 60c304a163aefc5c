"""Sizes of memory as people write them."""

import re
from typing import Final

MIB: Final = 1 << 20

FORMS: Final = "write it as Docker does (512m, 2g) or in IEC form (512MiB, 2GiB)"

_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PATTERN: Final = re.compile(r"([0-9]{1,15})(?:([bkmgt])|([KMGT]iB))?", re.ASCII)
_IEC: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def parse_size(text: str) -> int:
    """Return the bytes that `text` names.

    Units are binary, as in `docker run --memory`: `2g` and `2GiB` are both 2 * 2**30. A form that different
    tools read differently, such as `20GB`, is an error rather than a guess.

    Raises:
        ValueError: the text is of no known form, or not positive; says which forms there are.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: {FORMS}")
    number, docker, iec = match.groups()
    unit = docker or (iec[0].lower() if iec else "")
    size = int(number) * _UNITS[unit]
    if size == 0:
        raise ValueError(f"{text!r} is no memory at all: a size must be greater than zero; {FORMS}")
    return size


def format_size(size: int) -> str:
    """Return `size` bytes in the largest IEC unit that leaves a whole one, with at most two decimals."""
    for unit, name in _IEC:
        if size >= unit:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + name
    return f"{size}B"
