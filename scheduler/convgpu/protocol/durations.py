"""Spans of time as people write them."""

import re
from typing import Final

_PATTERN: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?", re.ASCII)
_SECONDS: Final = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Return the seconds of `500ms`, `30s`, `5m`, `2h`, `1d` or a plain number of seconds.

    Raises:
        ValueError: another form; says which there are.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write it as 500ms, 30s, 5m, 2h or 1d")
    return int(match[1]) * _SECONDS[match[2]]
