"""A command of Slurm for quick paths: `subprocess` would take longer to import than it to answer (decision 152)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class UnusualError(Exception):
    """The line, or an answer, is left to the whole command."""


class QuickCommand:
    """A command that runs; what it says on stderr is left to the whole command, which asks again."""

    def __init__(self, *words: str, text: str = "") -> None:
        """Start it; `text`: for its stdin."""
        self._words = words
        self._answer, out = os.pipe()
        source, feed = os.pipe()
        files: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, out, 1)]
        files.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        try:
            self._process = os.posix_spawnp(words[0], words, os.environ, file_actions=files)
            _write(feed, text.encode())
        finally:
            for end in (source, feed, out):
                os.close(end)

    def finish(self) -> str:
        """Return what it prints.

        Raises:
            UnusualError: it fails; then it has changed nothing.
        """
        parts = [b"x"]
        while parts[-1]:
            parts.append(os.read(self._answer, 1 << 16))
        os.close(self._answer)
        _, status = os.waitpid(self._process, 0)
        if status:
            raise UnusualError(self._words, status)
        return b"".join(parts[1:]).decode()


def _write(end: int, text: bytes) -> None:
    """Write to a pipe that holds all of it, so that nobody waits.

    Raises:
        UnusualError: it is longer than that.
    """
    if len(text) > 1 << 15:
        raise UnusualError(len(text))
    os.write(end, text)
