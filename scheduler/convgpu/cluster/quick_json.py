"""JSON for the programs that each job of a node waits for. Pure."""

import _json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class _Strict:
    """What CPython's scanner asks of a decoder: numbers, objects and strings as `json` makes them."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own


_scan = _json.make_scanner(_Strict)  # type: ignore[arg-type]  # it only reads these fields


def read(document: str) -> "Any":
    """Return what a document says.

    The module `json` imports `re`, which takes longer than all else in a Prolog; it reads only what its scanner alone
    cannot, for the sake of its errors.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return _scan(document, 0)[0]
    except (StopIteration, SystemError, ValueError):
        import json  # noqa: PLC0415

        return json.loads(document)


def text(value: "str | int | Mapping[str, Any]") -> str:
    """Return a document of text, whole numbers and objects of them."""
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    if isinstance(value, int):
        return str(value)
    return "{" + ",".join(f"{text(name)}:{text(part)}" for name, part in value.items()) + "}"
