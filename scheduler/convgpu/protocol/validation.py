"""What msgspec finds wrong with a document, for people: the place as they write it, and what is expected there."""

import re
from collections.abc import Callable
from typing import Final

import msgspec

# `Expected ... - at `$.a.b[0]``, or for a key of a mapping `- at `key` in `$.a``.
_PLACE: Final = r"(?s)(.*) - at (`key` in )?`\$\.?(.*)`"
_FIELD: Final = r"Object (missing required|contains unknown) field `(.*)`"
_TYPES: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table of keys and values",
    "null": "nothing",
}

# Compiled when there is an error: commands have no time for that.
_PHRASES: Final[tuple[tuple[str, Callable[[re.Match[str]], str]], ...]] = (
    (r"Expected `str` of length <= (\d+)", lambda found: f"must have at most {found[1]} characters"),
    (r"Expected `str` of length >= (\d+)", lambda found: f"must have at least {found[1]} characters"),
    (r"Expected `str` matching regex (.*)", lambda found: f"must match {found[1]}".replace(r"\\Z", "$")),
    (r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)", lambda found: f"must be {found[1]} {found[2]}"),
    (
        r"Expected `([^`]*)`, got `([^`]*)`",
        lambda found: f"must be {_type(found[1])}, not {_type(found[2])}",
    ),
    (r"Expected `([^`]*)`", lambda found: f"must be {_type(found[1])}"),
    (r"Invalid (?:enum )?value (.*)", lambda found: f"{found[1]} is not known"),
)


def explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return the path of the field that is wrong, empty for the document itself, and what is wrong with it."""
    found = re.fullmatch(_PLACE, str(error))
    problem, key, place = found.groups() if found else (str(error), None, "")
    if field := re.fullmatch(_FIELD, problem):
        return f"{place}.{field[2]}".lstrip("."), "missing" if field[1].startswith("missing") else "unknown"
    return place, f"{'each key ' if key else ''}{_phrase(problem)}"


def _phrase(problem: str) -> str:
    for pattern, write in _PHRASES:
        if found := re.fullmatch(pattern, problem):
            return write(found)
    return problem


def _type(names: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in names.split(" | "))
