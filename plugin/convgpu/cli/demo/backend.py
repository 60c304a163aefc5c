"""The interface of the demonstration's two backends, and the processes that both of them start."""

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.demo.scenario import DemoContainer


@dataclass(frozen=True, slots=True)
class Exited:
    """A container that has exited: its exit code, and its output."""

    exit_code: int
    output: str


class DemoBackend(Protocol):
    """Starts the containers and reports their exits. A context manager, which removes everything that it started."""

    scheduler: Scheduler
    description: str  # for people: what runs the containers
    removed: Sequence[str]  # what an earlier demonstration that was killed had left

    def __enter__(self) -> Self:
        """Return the backend."""

    def __exit__(self, *_: object) -> None:
        """End and remove everything that was started."""

    def start(self, container: DemoContainer) -> None:
        """Start a container and return at once."""

    def release(self, container: DemoContainer) -> None:
        """Let a container that stays exit."""

    def volumes(self) -> Mapping[str, DemoContainer]:
        """Return the containers that the scheduler knows by now, by volume."""

    def exited(self) -> Mapping[str, Exited]:
        """Return the containers that have exited, by name."""


class DemoProcess:
    """A child process whose output goes to a file, and whose standard input stays open if its container stays.

    Args:
        command: program and arguments.
        container: for which it runs.
        environment: None: this process's own.
        before: called in the child before the program.
    """

    def __init__(
        self,
        command: Sequence[str],
        container: DemoContainer,
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE if container.stays else subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            preexec_fn=before,  # noqa: PLW1509 - we have no threads
            start_new_session=True,  # Ctrl-C is for the command, which then ends its containers
        )

    def release(self) -> None:
        """Close its standard input."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def exited(self) -> Exited | None:
        """Return exit code and output; None while it runs."""
        if self.process.poll() is None:
            return None
        self._output.seek(0)
        return Exited(self.process.returncode, self._output.read().decode(errors="replace").strip())

    def close(self) -> None:
        """Close its files; call it after the process has ended."""
        self.release()
        self._output.close()
