"""Reads JSON as the Engine's decoder does (Go's encoding/json), and refuses it where two readers could differ.

Go matches the name of a field in any case, and folds U+017F to `s` and U+212A to `k`; it merges objects that are
named twice and, on old Engines, ignores text behind the document. A stricter reader would see another request than
the Engine carries out. Therefore names are folded in the same way, and an ambiguous document raises `Ambiguous`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

_FOLD: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)} | {0x17F: "s", 0x212A: "k"}
_FEW: Final = 8  # names that are folded as quickly for each field, in an object that takes less time to make
_SHOWN: Final = 60  # characters of a name


class Ambiguous(ValueError):  # noqa: N818 - the state of a document
    """The document is not JSON, or has not the Engine's types, or can be read in two ways."""


class _Object(dict[str, object]):
    """An object of a request, which folds its names once, and not for each field that is read.

    A request of 1 MB may have 111,000 names, of which a container's reader looks for 80.
    """

    _spellings: dict[str, list[str]] | None = None

    def spellings(self, name: str) -> Sequence[str]:
        """Return the names that fold to this one."""
        if self._spellings is None:
            self._spellings = {}
            for key in self:
                self._spellings.setdefault(fold(key), []).append(key)
        return self._spellings.get(name, ())


def fold(name: str) -> str:
    """Return `name` as Go compares it: in lower case, also the two letters that Go folds to ASCII."""
    # Of ASCII that is the same, in a tenth of the time.
    return name.lower() if name.isascii() else name.translate(_FOLD)


def has_null_in_list(document: object) -> bool:
    """Tell whether a list holds a null, wherever it is in a document: one may be deeper than Python calls itself."""
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            if None in value:
                return True
            todo += value
        elif isinstance(value, dict):
            todo += value.values()
    return False


def parse(raw: bytes) -> dict[str, object]:
    """Return the document with its names as they are written; `field` folds them.

    Raises:
        Ambiguous: not strict UTF-8, half of a character, no single JSON object, a name twice in one object, NaN or
            infinity.
    """
    try:
        document = json.loads(raw.decode("utf-8", "strict"), object_pairs_hook=_unique, parse_constant=_no_constant)
        if b"\\ud" in raw.lower():  # half of a pair, which Go replaces by another character
            json.dumps(document, ensure_ascii=False).encode()
    except Ambiguous:
        raise
    except (ValueError, RecursionError) as error:
        raise Ambiguous(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Ambiguous("it is not a JSON object")
    return document


def field(document: Mapping[str, object], name: str) -> object:
    """Return the field that Go would read as `name` (given folded), None if there is none or it is null.

    Raises:
        Ambiguous: several names fold to this one.
    """
    if isinstance(document, _Object):
        found = document.spellings(name)
    else:
        found = [key for key in document if fold(key) == name]
    if len(found) > 1:
        raise Ambiguous(f"it names the same field twice: {', '.join(f'{key[:_SHOWN]!r}' for key in found[:2])}")
    return document[found[0]] if found else None


def length(document: Mapping[str, object], name: str) -> int:
    """Return how many entries a field has that is a list or an object; 0 for any other, at which its reader ends."""
    value = field(document, name)
    return len(value) if isinstance(value, list | dict) else 0


def text(document: Mapping[str, object], name: str) -> str:
    """Return a text field, empty if it is missing or null."""
    value = field(document, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Ambiguous(f"{name} is not text")
    return value


def child(document: Mapping[str, object], name: str) -> dict[str, object]:
    """Return an object field, empty if it is missing or null."""
    value = field(document, name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Ambiguous(f"{name} is not an object")
    return value


def children(document: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """Return a field that is a list of objects; Go reads a null in it as an empty object."""
    found = []
    for value in _list(document, name):
        if value is not None and not isinstance(value, dict):
            raise Ambiguous(f"{name} holds something that is not an object")
        found.append(value or {})
    return found


def texts(document: Mapping[str, object], name: str) -> list[str]:
    """Return a field that is a list of texts; Go reads a null in it as an empty text."""
    found = []
    for value in _list(document, name):
        if value is not None and not isinstance(value, str):
            raise Ambiguous(f"{name} holds something that is not text")
        found.append(value or "")
    return found


def lists_of_texts(document: Mapping[str, object], name: str) -> list[list[str]]:
    """Return a field that is a list of lists of texts; Go reads a null in it as an empty one."""
    return [texts({name: row}, name) for row in _list(document, name)]


def words(document: Mapping[str, object], name: str) -> list[str]:
    """Return a field that is a list of texts, or one text, which Docker's `strslice` reads as a list of one."""
    value = field(document, name)
    return [value] if isinstance(value, str) else texts(document, name)


def flag(document: Mapping[str, object], name: str) -> bool:
    """Return a Boolean field, False if it is missing or null."""
    value = field(document, name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Ambiguous(f"{name} is neither true nor false")
    return value


def map_of_texts(document: Mapping[str, object], name: str) -> dict[str, str]:
    """Return a field that maps names of the user's, which are not folded, to texts; Go reads null as an empty text."""
    found = {}
    for key, value in child(document, name).items():
        if value is not None and not isinstance(value, str):
            raise Ambiguous(f"{name} holds something that is not text")
        found[key] = value or ""
    return found


def _list(document: Mapping[str, object], name: str) -> list[object]:
    value = field(document, name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Ambiguous(f"{name} is not a list")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = _Object(pairs) if len(pairs) > _FEW else dict(pairs)
    if len(document) < len(pairs):
        raise Ambiguous("it names a field twice in one object")
    return document


def _no_constant(name: str) -> object:
    raise Ambiguous(f"{name} is not JSON")
