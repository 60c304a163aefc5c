"""Random paths, asked of ConvGPU and of a real Engine: what does a mount of each, or a device at it, really show?

Both must agree, by device and inode number, or ConvGPU must take the path for `/`, which every rule refuses.
CONVGPU_PATHS=5000 asks that many of each kind; `make test` some hundreds.
"""

import os
import random
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from raw_engine import RawEngine

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.subject.reader import follow

pytestmark = pytest.mark.engine

NUMBER = int(os.environ.get("CONVGPU_PATHS", "240"))
BATCH = 120  # mounts or devices of one container
TOP = Path(f"/tmp/convgpu-paths-{os.getpid()}/d/d")
UMLAUT = unicodedata.normalize("NFC", "ü"), unicodedata.normalize("NFD", "ü")
FOLDERS = ("a", "a/b", "a/b/c", "b", "b/c", "c", "x y", *UMLAUT, f"a/{UMLAUT[0]}")
LINKS = ("l", "m", "n", "o")
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8)}
REFUSED = "/"
HOST = HostDevices(lambda: Path("/"))


def part(draw: random.Random) -> str:
    names = (*FOLDERS, *LINKS, *LINKS, "f", ".", "..", "..", "", "missing", "chain9", "long", "null", "zero")
    return draw.choice(names)


def relative(draw: random.Random) -> str:
    return "/".join(part(draw) for _ in range(draw.randint(1, 5)))


def spell(draw: random.Random, path: str) -> str:
    """Return an absolute path in one of the spellings of its beginning and its end."""
    top = draw.choice(
        (f"{TOP}", f"{TOP}", f"/{TOP}", f"{TOP}/.", f"{TOP}/../d", f"/proc/self/root{TOP}", f"{TOP}/a/..")
    )
    return f"{top}/{path}{draw.choice(('', '', '', '/', '//', '/.'))}"


@pytest.fixture(scope="module")
def draw() -> random.Random:
    return random.Random(7)  # noqa: S311 - paths of a test


@pytest.fixture(scope="module")
def paths(draw: random.Random) -> Iterator[list[str]]:
    """Random paths of a random tree: folders, files, device nodes, links and chains of links."""
    for folder in FOLDERS:
        (TOP / folder).mkdir(parents=True)
        (TOP / folder / "f").write_text(folder)
        for name, (major, minor) in NODES.items():
            os.mknod(TOP / folder / name, 0o600 | 0o020000, os.makedev(major, minor))
    for folder in ("", *FOLDERS):
        for name in LINKS:
            target = relative(draw) or "."
            if draw.random() < 0.3:
                target = spell(draw, target)
            (TOP / folder / name).symlink_to(target)
    for name, length in (("chain", 10), ("long", 60)):
        for number in range(length):
            (TOP / f"{name}{number}").symlink_to(f"{name}{number - 1}" if number else "a/b")
    (TOP / "long").symlink_to("long59")
    yield [spell(draw, relative(draw)) for _ in range(NUMBER)]
    shutil.rmtree(TOP.parents[1])


def bind(number: int, path: str) -> dict[str, object]:
    return {"Type": "bind", "Source": path, "Target": f"/m/{number}"}


def volume(number: int, path: str) -> dict[str, object]:
    config = {"Name": "local", "Options": {"type": "none", "o": "bind", "device": path}}
    return {"Type": "volume", "Target": f"/m/{number}", "VolumeOptions": {"DriverConfig": config}}


def device(number: int, path: str) -> dict[str, object]:
    return {"PathOnHost": path, "PathInContainer": f"/dev/cg{number}", "CgroupPermissions": "r"}


KINDS = {"bind": ("Mounts", bind), "volume": ("Mounts", volume), "device": ("Devices", device)}


class Asked:
    """What a real Engine makes of paths: batches in one container each, halved where it refuses one of them."""

    def __init__(self, raw: RawEngine, logs, kind: str) -> None:
        self._raw, self._logs = raw, logs
        self._field, self._row = KINDS[kind]
        self._format = "%t:%T" if kind == "device" else "%d:%i"
        self._places = "/dev/cg*" if kind == "device" else "/m/*"

    def all(self, paths: Sequence[str]) -> dict[str, str]:
        """Return what each path shows, as `stat` in the container prints it; without those that the Engine refuses."""
        found: dict[str, str] = {}
        for begin in range(0, len(paths), BATCH):
            found |= self._batch(paths[begin : begin + BATCH])
        return found

    def _batch(self, paths: Sequence[str]) -> dict[str, str]:
        seen = self._run(paths)
        if seen is not None:
            return seen
        if len(paths) == 1:
            return {}
        middle = len(paths) // 2
        return self._batch(paths[:middle]) | self._batch(paths[middle:])

    def _run(self, paths: Sequence[str]) -> dict[str, str] | None:
        rows = [self._row(number, path) for number, path in enumerate(paths)]
        command = ["sh", "-c", f"exec stat -c '%n {self._format}' {self._places}"]
        host = {"NetworkMode": "none", self._field: rows}
        created = self._raw.post("/containers/create", {"Image": "convgpu/demo", "Cmd": command, "HostConfig": host})
        if created.status != 201:
            return None
        container = created.json["Id"]
        try:
            if self._raw.post(f"/containers/{container}/start").status != 204:
                return None
            assert self._raw.post(f"/containers/{container}/wait").json["StatusCode"] == 0
            seen = dict(line.split(" ") for line in self._logs(container).splitlines())
        finally:
            self._raw.remove(container)
        numbers = ((int(place.rpartition("/")[2].removeprefix("cg")), value) for place, value in seen.items())
        return {paths[number]: value for number, value in numbers}


def ours(kind: str, path: str) -> str:
    """Return what ConvGPU takes a path for, in the form of `Asked`; `REFUSED` for one that every rule refuses."""
    leads = HOST.resolve(f"/{path}") if kind == "device" else follow(HOST, path)
    if leads == REFUSED:
        return REFUSED
    try:
        status = Path(leads).lstat()
    except OSError:
        return "nothing"
    if kind == "device":
        return f"{os.major(status.st_rdev):x}:{os.minor(status.st_rdev):x}"
    return f"{status.st_dev}:{status.st_ino}"


def there(kind: str, path: str) -> bool:
    """Leave out what no reading finds, so that batches are not halved for nothing; the rest the Engine says."""
    try:
        found = Path(path).resolve() if kind == "device" else Path(os.path.normpath(path))
        return (found if kind != "volume" else Path(path)).exists() and (kind != "device" or found.is_char_device())
    except (OSError, RuntimeError):
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_convgpu_and_the_engine_agree_on_what_a_path_means(engine, paths, kind, draw):
    raw = RawEngine(f"{engine.directory}/docker.sock")
    if kind == "device":
        paths = [spell(draw, f"{relative(draw)}/{draw.choice(list(NODES))}").rstrip("/.") for _ in paths]
    asked = sorted({path for path in paths if there(kind, path)})[: NUMBER // (1 if kind == "bind" else 3)]
    shown = Asked(raw, lambda container: engine("logs", container), kind).all(asked)
    taken = {path: ours(kind, path) for path in shown}
    assert {path: (taken[path], shown[path]) for path in shown if taken[path] not in {shown[path], REFUSED}} == {}
    agreed = sum(value != REFUSED for value in taken.values())
    assert agreed > len(asked) // 3, (agreed, len(shown), len(asked))
