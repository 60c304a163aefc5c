"""Where the demonstration is played: on a Docker Engine, or with plain processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.demo.scenario import Part


@dataclass(frozen=True, slots=True)
class Ended:
    """A part that is over: its exit code, and what it printed."""

    exit_code: int
    output: str


class Stage(Protocol):
    """Starts the parts and says when they are over. Used as a context manager, which leaves nothing behind."""

    scheduler: Scheduler
    words: str  # for people: what plays the parts

    def __enter__(self) -> Self:
        """Return the stage."""

    def __exit__(self, *_: object) -> None:
        """End and remove whatever was started."""

    def start(self, part: Part) -> None:
        """Start a part and return at once."""

    def release(self, part: Part) -> None:
        """Let a part that stays come to its end."""

    def volumes(self) -> Mapping[str, Part]:
        """Return the parts that the scheduler knows by now, by volume."""

    def ended(self) -> Mapping[str, Ended]:
        """Return the parts that are over, by name."""
