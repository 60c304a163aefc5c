"""The command line of `docker run`, read as far as ConvGPU needs it. Pure.

Docker's own parser (pflag) stops at the first argument that is neither an option nor an option's value: the
image. To find it, one has to know which options take no value. Those are listed here; every other option
takes one, so an option that a later Docker adds is read correctly unless it is a new flag without a value.
"""

from __future__ import annotations

import posixpath

from convgpu.cli.run.csv_row import read_row
from convgpu.protocol.layout import MOUNT_PATH
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Final

# `docker run --help`, Engine 20.10 to 29: the options without a type behind them.
FLAGS: Final = frozenset({
    "detach", "disable-content-trust", "help", "init", "interactive", "no-healthcheck", "oom-kill-disable",
    "privileged", "publish-all", "quiet", "read-only", "rm", "sig-proxy", "tty", "use-api-socket",
})  # fmt: skip
SHORT: Final[Mapping[str, str]] = {
    "a": "attach", "c": "cpu-shares", "d": "detach", "e": "env", "h": "hostname", "i": "interactive",
    "l": "label", "m": "memory", "p": "publish", "P": "publish-all", "q": "quiet", "t": "tty", "u": "user",
    "v": "volume", "w": "workdir",
}  # fmt: skip


class UsageError(ValueError):
    """The command line cannot be understood, or cannot work; the text is for the user."""


class Option(Record):
    """One option: its long name, and its value; a flag without one has `None`."""

    name: str
    value: str | None


class CommandLine(Record):
    """The arguments of `convgpu run`.

    Attributes:
        own: the words of ConvGPU's own options, for click.
        docker: the words in front of IMAGE that are Docker's, untouched and in order.
        options: the same as `docker`, understood.
        image: IMAGE and everything behind it; empty when no image was named.
    """

    own: tuple[str, ...]
    docker: tuple[str, ...]
    options: tuple[Option, ...]
    image: tuple[str, ...]

    def values(self, *names: str) -> tuple[str, ...]:
        """Return the values of the options of these names, in the order written."""
        return tuple(option.value or "" for option in self.options if option.name in names)


def scan(words: Sequence[str], own: Mapping[str, bool]) -> CommandLine:
    """Split the words behind `convgpu run`.

    Args:
        words: as the shell gave them.
        own: ConvGPU's own options without dashes; whether each takes a value.

    Raises:
        UsageError: an option at the end has no value.
    """
    ours: list[str] = []
    docker: list[str] = []
    options: list[Option] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return CommandLine(tuple(ours), tuple(docker), tuple(options), tuple(rest))
        if not word.startswith("-") or word == "-":
            return CommandLine(tuple(ours), tuple(docker), tuple(options), (word, *rest))
        read, taken = _read_long(word, rest, own) if word.startswith("--") else _read_short(word, rest)
        if read[0].name in own:
            ours.extend(taken)
        else:
            docker.extend(taken)
            options.extend(read)
    return CommandLine(tuple(ours), tuple(docker), tuple(options), ())


def _read_long(word: str, rest: Iterator[str], own: Mapping[str, bool]) -> tuple[list[Option], list[str]]:
    name, equals, value = word[2:].partition("=")
    if equals:
        return [Option(name, value)], [word]
    if name in FLAGS or own.get(name) is False:
        return [Option(name, None)], [word]
    value = _next(word, rest)
    return [Option(name, value)], [word, value]


def _read_short(word: str, rest: Iterator[str]) -> tuple[list[Option], list[str]]:
    """Read `-it`, `-itd`, `-eA=1`, `-e=A=1`, `-itv /a:/b`, `-t=false`."""
    read: list[Option] = []
    letters = word[1:]
    while letters:
        name, letters = SHORT.get(letters[0], letters[0]), letters[1:]
        if name in FLAGS and not letters.startswith("="):
            read.append(Option(name, None))
        elif letters:
            read.append(Option(name, letters.removeprefix("=")))
            break
        else:
            value = _next(word, rest)
            return [*read, Option(name, value)], [word, value]
    return read, [word]


def _next(word: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise UsageError(f"option {word} needs a value")
    return value


def mounts_at(line: CommandLine, path: str = MOUNT_PATH) -> str | None:
    """Return the option of the user that mounts something at `path` of the container, if there is one."""
    for option in line.options:
        value = option.value or ""
        if option.name in {"volume", "tmpfs"}:
            parts = value.split(":")
            # -v SOURCE:PATH[:MODE], -v PATH, --tmpfs PATH[:OPTIONS]
            target = parts[1] if option.name == "volume" and len(parts) > 1 else parts[0]
        elif option.name == "mount":
            fields = dict(field.partition("=")[::2] for field in read_row(value))
            target = next((fields[key] for key in ("destination", "dst", "target") if key in fields), "")
        else:
            continue
        if target and posixpath.normpath(target) == path:
            return f"--{option.name} {value}"
    return None


def environment(
    line: CommandLine,
    name: str,
    *,
    inherited: Mapping[str, str],
    files: Collection[str],
    image: Sequence[str],
) -> str:
    """Return the value that the variable `name` would have in the container; empty when it is not set.

    Docker lets `-e` win over `--env-file`, and that over the image; `-e NAME` alone takes the caller's value.

    Args:
        line: the user's command line.
        name: of the variable.
        inherited: the caller's own environment.
        files: the text of each `--env-file`, in order.
        image: the image's environment, as `NAME=VALUE`.
    """
    entries = [*image]
    for text in files:
        entries.extend(row.lstrip() for row in text.splitlines() if not row.lstrip().startswith("#"))
    entries.extend(line.values("env"))
    result = ""
    for entry in entries:
        key, equals, value = entry.partition("=")
        if key == name:
            result = value if equals else inherited.get(name, "")
    return result


def check(line: CommandLine) -> None:
    """Check what needs no Engine.

    Raises:
        UsageError: no IMAGE, or something else is mounted where ConvGPU's volume has to be.
    """
    if not line.image:
        raise UsageError(
            "no IMAGE is named. If it is there, an option in front of it took it as its value: "
            "convgpu run --gpu-memory 2g [docker run options] IMAGE [COMMAND]"
        )
    taken = mounts_at(line)
    if taken is not None:
        raise UsageError(
            f"{taken!r} mounts something at {MOUNT_PATH}, where ConvGPU's volume has to be: use another path"
        )
