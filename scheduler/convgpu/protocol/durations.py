"""Spans of time as people write them."""

from __future__ import annotations

TYPE_CHECKING = False  # `re` and `typing` are not imported on the quick path of `convgpu run` (decision 143)
if TYPE_CHECKING:
    from typing import Final

_SECONDS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DIGITS: Final = 9


def parse_duration(text: str) -> float:
    """Return the seconds of `500ms`, `30s`, `5m`, `2h`, `1d` or a plain number of seconds.

    Raises:
        ValueError: another form; says which there are.
    """
    number = text.strip().rstrip("mshd")
    unit = text.strip()[len(number) :]
    if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS and unit in _SECONDS):
        raise ValueError(f"{text!r} is not a duration: write it as 500ms, 30s, 5m, 2h or 1d")
    return int(number) * _SECONDS[unit]
