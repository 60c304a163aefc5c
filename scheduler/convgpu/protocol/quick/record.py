"""Records of the quick path of `convgpu run`: as frozen dataclasses, whose import takes 44 ms (decision 143)."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would import typing
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_settings):
        """Return the decorator that means nothing when the program runs."""
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class Record:
    """A base of records: the annotations of a class are its fields, in order; what stands behind them, its defaults."""

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self._fields()
        given = {**dict(zip(fields, values, strict=False)), **named}
        missing = [name for name in fields if name not in given and not hasattr(type(self), name)]
        if len(values) > len(fields) or missing or not given.keys() <= set(fields):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(fields)}, not {values} {named}")
        self.__dict__.update(given)

    @classmethod
    def _fields(cls) -> tuple[str, ...]:
        return tuple(cls.__annotations__)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields())

    def changed(self, **named: Any) -> Self:
        """Return a copy with other values in some fields."""
        return type(self)(**dict(zip(self._fields(), self._values(), strict=True)) | named)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Record) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = zip(self._fields(), self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"
