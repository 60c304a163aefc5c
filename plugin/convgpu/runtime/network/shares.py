"""Holds containers to their shares of the network, between the runtime's `create`, `start` and `delete`.

At `create` the share is noted, because the specification is at hand; at `start` the Engine has given the container its
interfaces, in any version; at `delete` the counters are still there.
"""

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.network.fence import NoFence, bucket, pairs, read_counters, read_links

FOLDER: Final = Path("/run/convgpu/networks")
_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Shares:
    """The notes of this host's containers with a share, one file for each by its id.

    Args:
        folder: of the notes.
    """

    folder: Path = FOLDER

    def note(self, container: str, rate: int | None, job: str = "") -> None:
        """Note what a container asks for; None removes an earlier note."""
        if rate is None:
            (self.folder / container).unlink(missing_ok=True)
            return
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._write(container, {"rate": rate, "job": job})

    def fence(self, container: str, runtime: Sequence[str]) -> None:
        """Hold a container to what was noted.

        Args:
            container: its id.
            runtime: the OCI runtime with its global options.

        Raises:
            NoFence, OSError: it must not start.
        """
        note = self._read(container)
        if note is None:
            return
        pid = str(json.loads(_output([*runtime, "state", container]))["pid"])
        enter = ["nsenter", "--target", pid, "--net"]
        show = ["ip", "-json", "-details", "link", "show"]
        ends = pairs(read_links(_output([*enter, *show])), read_links(_output(show)))
        rate = int(note["rate"]) // max(len(ends), 1)
        for inside, outside in ends:
            _output([*enter, "tc", *bucket(inside, rate)])
            _output(["tc", *bucket(outside, rate)])
        self._write(container, {**note, "ends": [outside for _, outside in ends]})

    def measure(self, container: str) -> None:
        """Note what a container of a job got and sent, for the job's Epilog; of others the note goes.

        It raises nothing: a note that cannot be read or written must not keep a container that has ended.
        """
        with suppress(OSError, ValueError):
            self._measure(container)

    def _measure(self, container: str) -> None:
        note = self._read(container)
        if note is None or "sent" in note:  # a second `delete`, when its interfaces are gone
            return
        if not note.get("job"):
            self.note(container, None)
            return
        text = Path("/proc/self/net/dev").read_text(encoding="ascii")
        received, sent = read_counters(text, note.get("ends", ()))
        self._write(container, {**note, "received": received, "sent": sent})

    def _read(self, container: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / container).read_bytes())
        except FileNotFoundError:
            return None
        return found

    def _write(self, container: str, note: dict[str, Any]) -> None:
        new = self.folder / f".{container}.new"
        new.write_text(json.dumps(note), encoding="ascii")
        new.replace(self.folder / container)


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError as error:
        raise NoFence(f"the program {command[0]} is not here: apt install iproute2 util-linux") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing about why"])[-1]
        raise NoFence(f"{' '.join(command[:6])}: {last}")
    return done.stdout
