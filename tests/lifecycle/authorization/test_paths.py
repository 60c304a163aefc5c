"""Random paths, asked of ConvGPU and of a real Engine: what does a mount of each, or a device at it, really show?

Both must agree, by device and inode number, or ConvGPU must take the path for `/`, which every rule refuses.
CONVGPU_PATHS=3000 asks that many different ones of each kind; `make test` 300 of each, and CONVGPU_SEED=N others.
A path that no reading finds is not asked: nobody would show anything.
"""

import os
import random
import shutil
import stat
import subprocess
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from daemon import ended_with_test
from raw_engine import RawEngine

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.subject.reader import follow

pytestmark = pytest.mark.engine

NUMBER = int(os.environ.get("CONVGPU_PATHS", "300"))  # different ones, of each kind
SEED = int(os.environ.get("CONVGPU_SEED", "7"))
BATCH = 150  # mounts or devices of one container
TOP = Path(f"/tmp/convgpu-paths-{os.getpid()}/d/d")
UMLAUT = unicodedata.normalize("NFC", "ü"), unicodedata.normalize("NFD", "ü")
CDI = "convgpu.io/memory=1g"  # reads like our CDI device
FOLDERS = ("a", "a/b", "a/b/c", "b", "b/c", "c", "x y", *UMLAUT, f"a/{UMLAUT[0]}", CDI)
LINKS = ("l", "m", "n", "o")
NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8)}
NAMES = (*FOLDERS, *LINKS, *LINKS, "f", ".", "..", "..", "", "missing", "null", "zero")
# Chains of links: the kernel follows 40, the Engine itself those of a device up to 255; `wind` goes through folders.
CHAINS = {"chain": 10, "most": 39, "long": 60, "wind": 12}
ENDS = (
    *(f"{name}{length - 1}" for name, length in CHAINS.items()),
    "chain3",
    "most38",
    "wind5",
    "node11",
    "deep59",
    CDI,
)
REFUSED = "/"
HOST = HostDevices(lambda: Path("/"))


def host_links() -> list[str]:
    """Return links of the host to folders: what is behind `..` differs from what the text says."""
    found = ("/var/run", "/var/lock", "/bin", "/lib", "/sbin", "/dev/fd", f"{TOP}/away")
    return [path for path in found if Path(path).is_symlink() and Path(path).is_dir()]


def part(draw: random.Random) -> str:
    return draw.choice(ENDS if draw.random() < 0.15 else NAMES)


def relative(draw: random.Random) -> str:
    return "/".join(part(draw) for _ in range(draw.randint(1, 5)))


def beginning(draw: random.Random) -> str:
    """Return one of the ways to the tree: plain, through links of the host, or through those of the reader itself."""
    if draw.random() < 0.6:
        return draw.choice((f"{TOP}", f"/{TOP}", f"{TOP}/.", f"{TOP}/../d", f"{TOP}/a/.."))
    through = [f"{link}{'/..' * depth}{TOP}" for link in host_links() for depth in (1, 2, 4)]
    return draw.choice((*through, *(f"/proc/self/root{TOP}", f"/proc/thread-self/root{TOP}", f"/dev/fd/../root{TOP}")))


def spell(draw: random.Random, path: str) -> str:
    """Return an absolute path in one of the spellings of its beginning and its end."""
    return f"{beginning(draw)}/{path}{draw.choice(('', '', '', '/', '//', '/.'))}"


def of_nodes(draw: random.Random) -> str:
    """Return a spelling of a device node's path, of the tree or of the host's; some without the first slash."""
    if draw.random() < 0.15:
        return f"{draw.choice(host_links())}{draw.choice(('/..', '/../..'))}/dev/{draw.choice(list(NODES))}"
    node = draw.choice((*NODES, *NODES, "node11", "deep59", CDI))
    whole = spell(draw, node if node in ("deep59", "node11") else f"{relative(draw)}/{node}").rstrip("/.")
    return whole.lstrip("/") if draw.random() < 0.1 else whole


@pytest.fixture(scope="module")
def others() -> Iterator[str]:
    """The pid of another process, which has the Engine's root."""
    with ended_with_test(subprocess.Popen(["sleep", "infinity"], cwd="/")) as process:
        yield str(process.pid)


@pytest.fixture(scope="module")
def draw() -> random.Random:
    return random.Random(SEED)  # noqa: S311 - paths of a test


@pytest.fixture(scope="module")
def tree(draw: random.Random) -> Iterator[Path]:
    """A random tree: folders, files, device nodes, links and chains of links."""
    for folder in FOLDERS:
        (TOP / folder).mkdir(parents=True)
        (TOP / folder / "f").write_text(folder)
        (TOP / folder / "convgpu.io").mkdir(exist_ok=True)
        for name, (major, minor) in NODES.items():
            os.mknod(TOP / folder / name, 0o600 | 0o020000, os.makedev(major, minor))
        os.mknod(TOP / folder / CDI, 0o600 | 0o020000, os.makedev(*NODES["full"]))
    (TOP / "away").symlink_to("a/b/c")
    for folder in ("", *FOLDERS):
        for name in LINKS:
            target = relative(draw) or "."
            if draw.random() < 0.3:
                target = spell(draw, target)
            (TOP / folder / name).symlink_to(target)
    for name, length in CHAINS.items():
        way = "a/../away/../../../" if name == "wind" else ""
        for number in range(length):
            (TOP / f"{name}{number}").symlink_to(f"{way}{name}{number - 1}" if number else "a/b")
    for name, length in (("node", 12), ("deep", 60)):
        for number in range(length):
            (TOP / f"{name}{number}").symlink_to(f"c/../{name}{number - 1}" if number else "b/zero")
    yield TOP
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
    """Leave out what the Engine refuses in any case, so that batches are not halved for nothing; the rest it says.

    It looks at a bind's path as it is and mounts what its text says without `..`; a volume is mounted at a folder; of a
    device it follows the last link itself.
    """
    try:
        if kind == "device":
            os.lstat(f"/{path}")
            return Path(f"/{path}").resolve(strict=True).is_char_device()
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib takes slashes and dots away
        return Path(os.path.normpath(path)).exists() if kind == "bind" else stat.S_ISDIR(mode)
    except (OSError, RuntimeError):
        return False


def drawn(kind: str, draw: random.Random) -> list[str]:
    """Return so many different paths, of those that are there."""
    found: dict[str, None] = {}
    for _ in range(1000 * NUMBER):
        path = of_nodes(draw) if kind == "device" else spell(draw, relative(draw))
        if path not in found and there(kind, path):
            found[path] = None
        if len(found) == NUMBER:
            break
    return list(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("tree")
def test_convgpu_and_the_engine_agree_on_what_a_path_means(engine, kind, draw):
    raw = RawEngine(f"{engine.directory}/docker.sock")
    asked = drawn(kind, draw)
    assert len(asked) == NUMBER
    shown = Asked(raw, lambda container: engine("logs", container), kind).all(asked)
    taken = {path: ours(kind, path) for path in shown}
    assert {path: (taken[path], shown[path]) for path in shown if taken[path] not in {shown[path], REFUSED}} == {}
    counted = Counter("refused" if value == REFUSED else "agreed" for value in taken.values())
    print(f"{kind}: {len(asked)} asked, {len(shown)} shown, {dict(counted)}")
    assert counted["agreed"] > len(asked) // 3, (counted, len(shown), len(asked))
    assert counted["refused"] > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("tree")
def test_links_of_processes_are_never_taken_for_something_else(engine, kind, others):
    """What a link of a process leads to is in nobody's text; the Engine's own are other ones than ours."""
    raw = RawEngine(f"{engine.directory}/docker.sock")
    folder = os.open("/", os.O_PATH)
    ways = [f"/dev/fd/{folder}", f"/proc/self/fd/{folder}/.", f"/dev/fd/{folder}/..", "/proc/self/cwd"]
    ways += [f"/proc/{pid}/root" for pid in (others, engine.process.pid)]
    ways += [f"/proc/{others}/cwd", f"/proc/{others}/task/{others}/root", f"/proc/{os.getpid()}/fd/{folder}"]
    paths = [f"{way}{TOP}/a{'/null' if kind == 'device' else ''}" for way in ways]
    asked = Asked(raw, lambda container: engine("logs", container), kind)
    shown = {path: seen for each in paths for path, seen in asked.all([each]).items()}
    taken = {path: ours(kind, path) for path in paths}
    os.close(folder)
    assert taken == dict.fromkeys(paths, REFUSED)
    assert shown or kind == "bind", "the Engine follows some of them"
