"""Reads a TOML document into structs and reports all its errors, where msgspec stops at the first."""

from collections.abc import Callable
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from convgpu.protocol.validation import explain

# Keys and positions that lead from the document to a value.
Location = tuple[str | int, ...]


class TableReader:
    """Reads one document; `problems` are the locations of its errors, each with a message.

    Args:
        decode: returns a value of a type that msgspec does not know; raises ValueError.
    """

    def __init__(self, decode: Callable[[type, object], object]) -> None:
        self.problems: Final[list[tuple[Location, str]]] = []
        self._decode = decode

    def read(self, kind: Any, value: object, place: Location = ()) -> Any:
        """Return a value as its type; the result is meaningless if there were problems."""
        arguments = get_args(kind)
        if _is_struct(kind):
            return self._read_struct(kind, value, place)
        if get_origin(kind) is dict and isinstance(value, dict):
            return {key: self.read(arguments[1], item, (*place, key)) for key, item in value.items()}
        if get_origin(kind) is tuple and _is_struct(arguments[0]) and isinstance(value, list):
            return tuple(self.read(arguments[0], item, (*place, number)) for number, item in enumerate(value))
        return self._read_leaf(kind, value, place)

    def _read_struct(self, kind: type[msgspec.Struct], value: object, place: Location) -> object:
        if not isinstance(value, dict):
            self._report(place, "Input should be a table")
            return None
        before = len(self.problems)
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        for key in value.keys() - types.keys():
            document = "docs/strict-rules.md" if place == ("strict",) else "docs/authorization.md"
            self._report((*place, key), f"unknown; {document} lists what there is")
        fields = {key: self.read(types[key], item, (*place, key)) for key, item in value.items() if key in types}
        if len(self.problems) > before:
            return None
        try:
            return kind(**fields)
        except ValueError as error:
            self._report(place, str(error))
            return None

    def _read_leaf(self, kind: Any, value: object, place: Location) -> object:
        if get_origin(kind) is Literal and value not in get_args(kind):
            *first, last = map(repr, get_args(kind))
            self._report(place, f"Input should be {', '.join(first)} or {last}")
            return None
        try:
            return msgspec.convert(value, kind, dec_hook=self._decode)
        except msgspec.ValidationError as error:
            self._report(place, explain(error)[1])
            return None

    def _report(self, place: Location, problem: str) -> None:
        self.problems.append((place, problem))


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
