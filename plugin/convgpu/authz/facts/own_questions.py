"""How the plugin knows its own question about a container's files, which comes back to it as a call of the Engine.

To judge it would ask it again. The Engine shows the headers of a call to authorization plugins only, so nobody else
knows the word.
"""

import hmac
import secrets
from collections.abc import Mapping
from typing import Final

_HEADER: Final = "X-ConvGPU-Question"
_WORD: Final = secrets.token_hex(32)

HEADERS: Final[Mapping[str, str]] = {_HEADER: _WORD}
"""Of the plugin's own `HEAD /containers/NAME/archive`."""


def is_own(method: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a call is such a question; headers have their names in lower case."""
    return method == "HEAD" and hmac.compare_digest(headers.get(_HEADER.lower(), "").encode(), _WORD.encode())
