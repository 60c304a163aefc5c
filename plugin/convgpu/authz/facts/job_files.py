"""The shares of Slurm's jobs on this host: files that the Prolog writes, as root (docs/cluster.md)."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from convgpu.cluster.node_job import NodeJob, read_node_job

_log: Final = logging.getLogger(__name__)


class JobFiles:
    """Reads them anew for each question: a job may have ended a moment ago.

    Args:
        folder: of the files; need not be there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def shares(self, job: str) -> Sequence[NodeJob]:
        """Return what a job has here; nothing for one that does not run here, or for a text that is no id."""
        if not (job.isascii() and job.isdecimal()):
            return ()
        return [share for path in sorted(self._folder.glob(f"{job}.*.json")) if (share := _read(path)) is not None]


def _read(path: Path) -> NodeJob | None:
    try:
        return read_node_job(path.read_bytes())
    except FileNotFoundError:
        return None  # the job ends just now
    except (OSError, ValueError) as error:
        _log.error("%s cannot be read, so its job may start nothing: %s", path, error)
        return None
