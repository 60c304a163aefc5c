"""Words for a shell, as `shlex` quotes them, whose import of `re` takes longer than all else (decision 152)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


def join(words: Iterable[str]) -> str:
    """Return a line that a shell splits into these words."""
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if word and _PLAIN.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
