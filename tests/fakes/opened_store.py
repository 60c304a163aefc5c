"""A store on its own: what it defers happens when a test says so."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from convgpu.core.liveness import Mount
from convgpu.daemon.storage.history import Bounds
from convgpu.daemon.storage.rows import DeviceMemory, PreviousSession, Volume
from convgpu.daemon.storage.store import Store
from convgpu.protocol.engine_container import EngineContainer

ENGINE = EngineContainer(id="f" * 64, name="happy", image="cuda")


def fill(store: Store) -> None:
    for number in range(12):
        name = f"volume-{number}"
        store.volumes.add(Volume(name, {"memory": "2g"}, 1.0 + number, since=1.0, limits={"gpu": 2 << 30}))
        store.volumes.set_mounts(name, {"id": Mount(2, 3.0)}, "running", 3.0)
        store.volumes.set_engine(name, ENGINE)
        store.sessions.add(PreviousSession(100 + number, 7, name, "python"))
    store.devices.set_all({"gpu": "H200"}, [DeviceMemory("gpu", 10, 8, 1, 1)])
    store.devices.set_drained("gpu", True)
    store.settings.set("policy", "fifo")


FULL = [
    Volume(f"volume-{n}", {"memory": "2g"}, 1.0 + n, "running", 3.0, {"id": Mount(2, 3.0)}, {"gpu": 2 << 30}, ENGINE)
    for n in range(12)
]

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


def laid_out(directory: Path, files: dict[str, bytes]) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for suffix, content in files.items():
        (directory / f"state.db{suffix}").write_bytes(content)
    return directory
