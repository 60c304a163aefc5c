"""Reads a TOML document into structs and reports all its errors, where msgspec stops at the first."""

from collections.abc import Callable
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from convgpu.protocol.validation import explain

# Keys and positions that lead from the document to a value.
Location = tuple[str | int, ...]


class TableReader:
    """Reads one document; `problems` are the places and what is wrong there.

    Args:
        decode: makes a value of a type that msgspec does not know; raises ValueError.
    """

    def __init__(self, decode: Callable[[type, object], object]) -> None:
        self.problems: Final[list[tuple[Location, str]]] = []
        self._decode = decode

    def read(self, kind: Any, value: object, place: Location = ()) -> Any:
        """Return a value as its type; what it is after a problem means nothing."""
        arguments = get_args(kind)
        if _is_struct(kind):
            return self._read_struct(kind, value, place)
        if get_origin(kind) is dict and isinstance(value, dict):
            return {key: self.read(arguments[1], each, (*place, key)) for key, each in value.items()}
        if get_origin(kind) is tuple and _is_struct(arguments[0]) and isinstance(value, list):
            return tuple(self.read(arguments[0], each, (*place, number)) for number, each in enumerate(value))
        return self._read_leaf(kind, value, place)

    def _read_struct(self, kind: type[msgspec.Struct], value: object, place: Location) -> object:
        if not isinstance(value, dict):
            self._complain(place, "Input should be a table")
            return None
        before = len(self.problems)
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        for key in value.keys() - types.keys():
            self._complain((*place, key), "unknown; docs/authorization.md lists what there is")
        fields = {key: self.read(types[key], each, (*place, key)) for key, each in value.items() if key in types}
        if len(self.problems) > before:
            return None
        try:
            return kind(**fields)
        except ValueError as error:
            self._complain(place, str(error))
            return None

    def _read_leaf(self, kind: Any, value: object, place: Location) -> object:
        if get_origin(kind) is Literal and value not in get_args(kind):
            *first, last = (repr(each) for each in get_args(kind))
            self._complain(place, f"Input should be {', '.join(first)} or {last}")
            return None
        try:
            return msgspec.convert(value, kind, dec_hook=self._decode)
        except msgspec.ValidationError as error:
            self._complain(place, explain(error)[1])
            return None

    def _complain(self, place: Location, problem: str) -> None:
        self.problems.append((place, problem))


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
