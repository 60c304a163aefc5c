"""Bounds what one call can cost all others: many things in one call, and many such calls at once (decision 179)."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

from convgpu.authz.requests.container import ContainerSettings
from convgpu.authz.verdict import Denied, Refusal

# Mounts, devices, requests for devices, rules and other containers that one container may name. About each volume the
# Engine is asked.
MOST_THINGS: Final = 512
# What names more, or has more bytes, is judged a few at a time.
FEW_THINGS: Final = 8
# Characters of a path that count as one thing more: each of its parts is a look, of a device or a mounted path.
_LONG: Final = 256
_SMALL_BODY: Final = 64 << 10
_AT_ONCE: Final = 4
_MOST_WAITING: Final = 32
_PATIENCE: Final = 10.0  # seconds

_TOO_MANY: Final = Refusal(
    "too-many",
    f"the container, or its image, names more than {MOST_THINGS} mounts, devices and other containers.\n"
    "Mount folders above them.",
)
_CROWDED: Final = Refusal(
    "crowded",
    f"too many calls at once have more than {_SMALL_BODY >> 10} KiB, or name more than {FEW_THINGS} mounts and "
    "devices.\nRepeat it.",
)


def count_things(container: ContainerSettings) -> int:
    """Return how many things are looked up for a container; what has a long path counts as several."""
    lists = (container.mounts, container.devices, container.device_rules, container.cdi_names, container.volumes_from)
    paths = (*container.devices, *(mount.source for mount in container.mounts))
    return sum(map(len, lists)) + sum(len(path) // _LONG for path in paths)


def refuse_too_many(container: ContainerSettings, more: int = 0) -> None:
    """Refuse a container that names more things than anybody needs.

    Args:
        container: that is asked for.
        more: volumes that its image makes for it.

    Raises:
        Denied: it does.
    """
    if count_things(container) + more > MOST_THINGS:
        raise Denied(_TOO_MANY)


def refuse_too_many_named(lists: Iterable[int]) -> None:
    """Refuse it by the lengths of the lists in its request, so that nothing is made of what is refused.

    Making the mounts of 1 MB took 7 s, for which others waited.

    Args:
        lists: the lengths; no more of them are asked for than it takes.

    Raises:
        Denied: together they are too long.
    """
    if any(total > MOST_THINGS for total in accumulate(lists)):
        raise Denied(_TOO_MANY)


class LargeCalls:
    """Lets few large calls be judged at once, and few wait for that; several threads may use it.

    Args:
        patience: seconds for which one may wait.
    """

    def __init__(self, patience: float = _PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting = 0
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._own = threading.local()

    @contextmanager
    def turn(self, *, things: int = 0, size: int = 0) -> Iterator[None]:
        """Wait for a place if what is judged here is large; a thread that has one needs no second.

        Args:
            things: that are looked up.
            size: bytes of the body.

        Raises:
            Denied: too many wait, or it took too long.
        """
        if (things <= FEW_THINGS and size <= _SMALL_BODY) or getattr(self._own, "has_place", False):
            yield
            return
        self._wait()
        self._own.has_place = True
        try:
            yield
        finally:
            self._own.has_place = False
            self._places.release()

    def _wait(self) -> None:
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Denied(_CROWDED)
            self._waiting += 1
        try:
            if not self._places.acquire(timeout=self._patience):
                raise Denied(_CROWDED)
        finally:
            with self._lock:
                self._waiting -= 1
