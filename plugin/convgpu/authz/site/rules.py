"""The rules of a site: one TOML file (docs/authorization.md)."""

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from convgpu.authz.site.strict_list import RULE_PREFIX, SECTIONS, StrictList
from convgpu.authz.site.table_reader import Location, TableReader
from convgpu.protocol.sizes import parse_size

# Every rule that an exemption can lift, for its `rules = [...]`.
RULES: Final = frozenset({
    "archive-path", "build-gpu", "capability", "checkpoint", "exec-privileged", "gpu-drained", "gpu-isolation",
    "gpu-needs-limit",
    "hook-shadowed", "hook-environment", "hook-not-loaded", "host-path", "host-pid", "limit-missing", "limit-too-large",
    "local-volume", "plugin-management", "priority-too-high", "privileged", "runtime", "service-template", "slurm-job",
    "total-quota-exceeded", "strict-exec", "strict-listing",
    "swarm-management", "system-paths", *(RULE_PREFIX + section for section in SECTIONS),
})  # fmt: skip

# In place of a user: all users that are not named.
OTHERS: Final = "*"


class RulesError(ValueError):
    """The file cannot be used; each line of the message names a line of the file."""


class Size(int):
    """Bytes; in the file an integer, or a text in the form of Docker's sizes."""


class SizeText(str):
    """A size as the file writes it."""

    __slots__ = ()


class RuleName(str):
    """One of RULES."""

    __slots__ = ()


def _decode(kind: type, value: object) -> object:
    """Return a value of the file as one of the types above.

    Raises:
        ValueError: the value has another type or form.
    """
    if kind is Size and type(value) is int:
        if value <= 0:
            raise ValueError("Input should be greater than 0")
        return Size(value)
    if not isinstance(value, str):
        expected = "a size: text, or a number of bytes" if kind is Size else "text"
        raise ValueError(f"Input should be {expected}")  # noqa: TRY004 - msgspec passes a ValueError on
    if kind is RuleName:
        if value not in RULES:
            raise ValueError(f"there is no rule {value!r}; the rules are {', '.join(sorted(RULES))}")
        return RuleName(value)
    size = parse_size(value)
    return Size(size) if kind is Size else SizeText(value)


class Allowance(msgspec.Struct, frozen=True):
    """What a user or label may have of one GPU; None for no bound.

    Attributes:
        largest_limit: of one container, in bytes.
        total_quota: of the limits of all containers that run or may start, in bytes.
        largest_priority: of one container.
    """

    largest_limit: Size | None = None
    total_quota: Size | None = None
    largest_priority: int | None = None


class Exemption(msgspec.Struct, frozen=True):
    """Lifts rules for some containers or users; a field that is left out fits all.

    An exemption needs an image or a label, or both users and rules.

    Attributes:
        image: name with or without tag, `*` for any text, or the ID `sha256:...`, the only one that cannot be imitated.
        label: `NAME=VALUE`, or `NAME`.
        users: whose calls it exempts; empty for all users.
        rules: that it lifts; empty for all rules.
    """

    image: str = ""
    label: str = ""
    users: tuple[str, ...] = ()
    rules: tuple[RuleName, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an exemption of all calls from all rules, which is `mode = "off"`."""
        if not (self.image or self.label or (self.users and self.rules)):
            raise ValueError("an exemption needs an image or a label, or both users and rules")

    def fits(self, rule: str, user: str, image: str, image_id: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the exemption lifts a rule for a container."""
        if (self.rules and rule not in self.rules) or (self.users and user not in self.users):
            return False
        if self.image and not _is_image(self.image, image, image_id):
            return False
        return not self.label or has_label(labels, self.label)


class Rules(msgspec.Struct, frozen=True):
    """The rules of a site; the defaults hold without a file.

    Attributes:
        mode: `strict` refuses what `enforce` refuses, and everything that is not in `strict`.
        require: what a container with a GPU must belong to: a job of Slurm that runs on this host, or nothing.
    """

    mode: Literal["enforce", "strict", "audit", "off"] = "enforce"
    administrators: tuple[str, ...] = ()
    default_limit: SizeText | None = None
    require: Literal["nothing", "slurm"] = "nothing"
    users: dict[str, Allowance] = {}
    labels: dict[str, Allowance] = {}
    exempt: tuple[Exemption, ...] = ()
    strict: StrictList = StrictList()

    def __post_init__(self) -> None:
        """Refuse exemptions that anybody could use, where nobody is trusted."""
        for each in self.exempt if self.mode == "strict" else ():
            if not each.users and not each.image.startswith("sha256:"):
                raise ValueError(
                    'in strict mode an exemption needs users, or an image as "sha256:...": anybody can take a name'
                )

    @property
    def strict_list(self) -> StrictList | None:
        """The list beyond which everything is refused; None without one. Mode `audit` logs what it would refuse."""
        in_force = self.mode == "strict" or (self.mode == "audit" and self.strict != StrictList())
        return self.strict if in_force else None

    def allowance(self, user: str) -> Allowance:
        """Return the quotas of a user."""
        return self.users.get(user) or self.users.get(OTHERS) or Allowance()

    def exempts(self, rule: str, user: str, image: str, image_id: str, labels: Mapping[str, str]) -> bool:
        """Tell whether an exemption lifts a rule for a container."""
        return any(exemption.fits(rule, user, image, image_id, labels) for exemption in self.exempt)


def parse_rules(text: str) -> Rules:
    """Return the rules that a file holds.

    Raises:
        RulesError: it is not TOML, or has unknown keys or bad values.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The message of tomllib ends with the position: "... (at line 3, column 5)".
        message, _, place = str(error).rpartition(" (at ")
        found = re.match(r"line (\d+)", place)
        number = found[1] if found else str(text.count("\n") + 1)
        raise RulesError(f"line {number}: {message or error}") from error
    except RecursionError as error:
        raise RulesError("line 1: it is nested too deeply") from error
    reader = TableReader(_decode)
    rules: Rules = reader.read(Rules, document)
    if reader.problems:
        lines = sorted(_describe(place, problem, list(_keys(text))) for place, problem in reader.problems)
        raise RulesError("\n".join(f"line {number}: {problem}" for number, problem in lines))
    return rules


def has_label(labels: Mapping[str, str], wanted: str) -> bool:
    """Tell whether a container carries `NAME=VALUE`, or a label `NAME`."""
    name, equals, value = wanted.partition("=")
    return name in labels and (not equals or labels[name] == value)


def _is_image(pattern: str, image: str, image_id: str) -> bool:
    if pattern.startswith("sha256:"):
        return pattern in (image_id, image)
    pattern, image = _short(pattern), _short(image)
    names = [image, image.partition("@")[0], _untagged(image)]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _short(image: str) -> str:
    return image.removeprefix("docker.io/").removeprefix("library/")


def _untagged(image: str) -> str:
    image = image.partition("@")[0]
    head, slash, last = image.rpartition("/")
    return head + slash + last.partition(":")[0]


_Place = tuple[int, tuple[str | int, ...]]
_HEADER: Final = re.compile(r"\s*(\[\[?)([^\]]+)\]")
_KEY: Final = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART: Final = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def _keys(text: str) -> Iterator[_Place]:
    """Find the line of each table and key, which tomllib does not report."""
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.match(line)) is not None:
            parts = _parts(header[2])
            table = parts
            if header[1] == "[[":
                counts[parts] = counts.get(parts, -1) + 1
                table = (*parts, counts[parts])
            yield number, table
        elif (key := _KEY.match(line)) is not None:
            yield number, (*table, *_parts(key[1]))


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _describe(location: Location, problem: str, places: Sequence[_Place]) -> tuple[int, str]:
    """Return the line of the innermost key or table that a problem is about, and the problem with its path."""
    lines = {path: number for number, path in reversed(places)}
    known = (lines[location[:length]] for length in range(len(location), 0, -1) if location[:length] in lines)
    return next(known, 1), f"{_named(location)}: {problem}"


def _named(location: Location) -> str:
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in location) or "the file"
