"""What all readers of a site's rules have to see alike; pure."""

import re
from typing import Final

_STRICT: Final = re.compile(rb"""^\s*["']?mode["']?\s*=\s*["']strict["']""", re.MULTILINE)


def says_strict(raw: bytes) -> bool:
    """Tell whether a file of rules means to be strict, even one that cannot be read."""
    return _STRICT.search(raw) is not None
