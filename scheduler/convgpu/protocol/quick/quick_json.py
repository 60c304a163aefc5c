"""JSON by the C scanner of the standard library's `json`, whose own import takes 23 ms (decision 143)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class _Context:
    """The settings of `json.JSONDecoder`, as the scanner reads them."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner empties it after each document


def loads(content: bytes) -> Any:
    """Return the document; `json` itself reads what is not plain, and words the error.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        from _json import make_scanner  # CPython's own, which another Python may not have

        text = content.decode().strip(" \t\r\n")
        document, end = make_scanner(_Context())(text, 0)  # type: ignore[arg-type]
    except (ImportError, AttributeError, TypeError, StopIteration, ValueError):
        end = -1
    if end != -1 and end == len(text):
        return document
    import json  # only damaged documents need it

    return json.loads(content)


def dumps(value: str | int | list[Any] | tuple[Any, ...] | Mapping[str, Any]) -> str:
    """Return a document of text, whole numbers, and lists and objects of them."""
    if isinstance(value, str):
        import _json

        return _json.encode_basestring_ascii(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(dumps, value))}]"
    return "{" + ",".join(f"{dumps(name)}:{dumps(part)}" for name, part in value.items()) + "}"
