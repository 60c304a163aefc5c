"""A store on its own: what it defers happens when a test says so."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from convgpu.daemon.storage.history import Bounds
from convgpu.daemon.storage.store import Store

BOUNDS = Bounds(rows=1000, age=3600.0)


class Later:
    """Keeps what is deferred until it is asked to happen."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay: float, call: Callable[[], None]) -> None:
        self.due.append((delay, call))

    def pass_time(self, longest: float = 0.5) -> None:
        """Let everything happen that is due within `longest` seconds, and what follows from it."""
        while near := [one for one in self.due if one[0] <= longest]:
            for one in near:
                self.due.remove(one)
                one[1]()

    def try_again(self) -> None:
        """Let pass the second after which is tried again what the disk did not take."""
        near, self.due = [one for one in self.due if one[0] <= 1.0], [one for one in self.due if one[0] > 1.0]
        for _, call in near:
            call()
        self.pass_time()


@contextmanager
def opened(directory: Path, later: Later | None = None, boot: str = "boot") -> Iterator[Store]:
    store = Store(directory, boot, later or Later())
    try:
        yield store
    finally:
        store.close()
