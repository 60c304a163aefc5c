"""Who started which container, so that limits add up for each user and label; kept across restarts of the plugin."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from convgpu.protocol.records import Container

_log: Final = logging.getLogger(__name__)

# Seconds from a permission to start until the volume is mounted; after that the scheduler's word counts alone.
_STARTING: Final = 10.0


@dataclass(frozen=True, slots=True)
class Owner:
    """Who started the container with a volume, when (Unix seconds), and the labels for which the site has a sum."""

    user: str
    labels: tuple[str, ...]
    since: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Whose containers add up: `kind` is `user` or `label`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def fits(self, owner: Owner) -> bool:
        """Tell whether what an owner started counts."""
        return owner.user == self.name if self.kind == "user" else self.name in owner.labels


class Owners:
    """Owners by the name of the volume.

    Args:
        path: of the file that keeps them.
        clock: Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        # Held from looking at the sum to adding to it, so that two starts at once cannot both take what is left.
        self.lock = threading.RLock()
        self._owners = self._load()

    def sum(self, containers: Iterable[Container], but: str, who: Counted) -> dict[str, int]:
        """Return the limits of the running containers that count for somebody, added up for each device.

        Args:
            containers: all that the scheduler knows.
            but: the volume of the container that is to start.
            who: the user or the label.
        """
        total: dict[str, int] = {}
        for container in containers:
            owner = self._owners.get(container.name)
            if owner is None or container.name == but or not who.fits(owner):
                continue
            if container.state in {"running", "waiting"} or self._is_starting(container, owner):
                for share in container.devices:
                    total[share.uuid] = total.get(share.uuid, 0) + share.limit
        return total

    def add(self, volume: str, user: str, labels: Sequence[str], containers: Iterable[Container]) -> None:
        """Remember who starts the container with a volume; forget those of volumes that are gone."""
        known = {container.name for container in containers}
        self._owners = {name: owner for name, owner in self._owners.items() if name in known}
        self._owners[volume] = Owner(user, tuple(labels), self._clock())
        self._save()

    def _is_starting(self, container: Container, owner: Owner) -> bool:
        """Tell whether it was let in a moment ago, and did not yet run and end."""
        # Not every scheduler tells since when; then what ended is taken for ended.
        ended = container.state == "ended" and (container.since is None or container.since >= owner.since)
        return not ended and self._clock() - owner.since < _STARTING

    def _load(self) -> dict[str, Owner]:
        try:
            rows: Mapping[str, Mapping[str, object]] = json.loads(self._path.read_text())
            return {
                name: Owner(str(row["user"]), tuple(row["labels"]), float(row["since"]))  # type: ignore[arg-type]
                for name, row in rows.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.error("%s cannot be read, so sums of limits begin at nothing: %s", self._path, error)
            return {}

    def _save(self) -> None:
        text = json.dumps({name: asdict(owner) for name, owner in self._owners.items()})
        new = self._path.with_name(self._path.name + ".new")
        try:
            new.write_text(text)
            os.replace(new, self._path)  # noqa: PTH105
        except OSError as error:
            _log.error("%s cannot be written; it is kept in memory until the plugin ends: %s", self._path, error)
