"""`convgpud replay`: replays a recording, and shows where this version decides otherwise."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

import click
import msgspec

from convgpu.core import events as e
from convgpu.core.recording.format import Entry, RecordingError
from convgpu.core.recording.replay import Difference, Replay, Summary

_MAX_LINE: Final = 16 << 20  # bytes; a longer line is cut off, and refused as such

_DIFFERS: Final = 1
_UNUSABLE: Final = 2


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--no-checks", is_flag=True, help="Compare only, without checking the invariants: much faster.")
def replay(file: Path, *, as_json: bool, no_checks: bool) -> None:
    """Replay a recording (--record) in a fresh scheduler, without a GPU, and compare each decision.

    Exit status: 0 when nothing differs, 1 with the first difference, 2 when the file is no whole recording.
    """
    player = Replay(checks=not no_checks)
    try:
        with file.open("rb") as opened:
            summary = player.play(_read_lines(opened))
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    except RecordingError as error:
        _refuse(f"{file}:{player.summary.lines + 1}: {error}{_describe_part(player.summary)}")
    click.echo(_as_json(summary) if as_json else _as_text(file, summary))
    sys.exit(0 if summary.difference is None else _DIFFERS)


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.readline, _MAX_LINE), b"")


def _refuse(text: str) -> NoReturn:
    click.echo(f"convgpud replay: {text}", err=True)
    sys.exit(_UNUSABLE)


def _describe_part(summary: Summary) -> str:
    if not summary.events:
        return ""
    return f" (no difference up to there: {summary.events:,} {_plural('event', summary.events)})"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _as_text(file: Path, summary: Summary) -> str:
    if summary.difference is not None:
        return _describe_difference(file, summary.difference)
    counts = {
        "event": summary.events,
        "effect": summary.effects,
        "container": summary.containers,
        "scheduler": summary.machines,
    }
    shown = ", ".join(f"{count:,} {_plural(noun, count)}" for noun, count in counts.items())
    return f"{file}: no difference ({shown}, {summary.seconds:,.1f} s)"


def _describe_difference(file: Path, difference: Difference) -> str:
    expected, actual = difference.expected, difference.actual
    rows = [
        ("event", f"{expected.event!r}{_describe_cause(expected.event)} at {expected.now:.3f} s"),
        *_label("expected", _describe_outcome(expected)),
        *_label("actual", _describe_outcome(actual)),
    ]
    lines = [f"{file}:{difference.line}: this version decides otherwise"]
    return "\n".join([*lines, *(f"  {label:<8}  {text}" for label, text in rows)])


def _label(label: str, texts: list[str]) -> list[tuple[str, str]]:
    return [(label if place == 0 else "", text) for place, text in enumerate(texts)]


def _describe_outcome(entry: Entry) -> list[str]:
    outcome = [repr(effect) for effect in entry.effects]
    outcome += [repr(entry.needs)] if entry.needs is not None else []
    outcome += [f"error {entry.error!r}"] if entry.error is not None else []
    return outcome or ["nothing"]


def _describe_cause(event: e.Event) -> str:
    session = getattr(event, "session", None)
    return "" if session is None else f" (cause {e.cause_of(session, getattr(event, 'request', 0))})"


def _as_json(summary: Summary) -> str:
    return msgspec.json.encode(summary).decode()
