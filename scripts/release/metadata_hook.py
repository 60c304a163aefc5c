# SPDX-License-Identifier: Apache-2.0
"""The project's addresses in its packages (hatchling's metadata hook): who publishes it says where, in `make release`.

    URLS="Homepage=https://...,Issues=https://..."

A wheel that is built from the sdist has those of the sdist.
"""

import os
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def addresses(text: str) -> dict[str, str]:
    """Return the addresses of `NAME=URL,NAME=URL`.

    Raises:
        ValueError: one has no name, or is none of the web.
    """
    found = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, url = part.partition("=")
        if not (name and url.startswith(("https://", "http://"))):
            raise ValueError(f"URLS: {part!r} is not NAME=https://...")
        found[name] = url
    return found


class AddressesHook(MetadataHookInterface):
    """See the module."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses."""
        described = Path(self.root, "PKG-INFO")
        metadata["urls"] = addresses(os.environ.get("URLS", ""))
        if described.exists() and not metadata["urls"]:
            lines = HeaderParser().parsestr(described.read_text(encoding="utf-8")).get_all("Project-URL", [])
            metadata["urls"] = dict(line.split(", ", 1) for line in lines)
