"""Attempts drawn by class, from a seed: paths, links, names and times of change, to get a GPU or the host in guard.

The tables of `bypasses` say what is asked for; here the spelling is drawn, and who changes what when. An attempt tells
by what it reached, which is asked of the container itself.
"""

import io
import os
import random
import secrets
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bypasses

LINKED = "generated-links"  # an image with links to the places of the hook
GPU_THERE = (
    "for f in /dev/x /dev/x/* /x /x/*; do [ -c $f ] && (: <$f) 2>&1 | grep -q 'No such device' && echo REACHED; done"
)
WITHOUT_HOOK = f"grep -q libconvgpu.so /proc/self/maps || ({GPU_THERE})"
# What guard refuses, and whether it does so read-only as well.
PROTECTED = {
    "/": True,
    "/run": True,
    "/run/docker": True,
    "/etc": False,
    "/usr": False,
    "/usr/bin": False,
    "/proc": False,
    "/sys": False,
    "/sys/fs/cgroup": False,
}
# Of the Engine's default, which is ours, authorization leaves some to the runtime's word.
RUNTIMES = ("", "runc")
CDI = "convgpu.io/memory=1g"
CHANGES = {"run": "/tmp", "convgpu": "/tmp", "ld.so.preload": "/tmp/x", "libconvgpu.so": "/tmp/x"}
Change = Callable[[], None]


@dataclass
class Ground:
    """Where an attempt is made.

    Attributes:
        folder: of its own; a user of the host may write there, and root put device nodes there.
        data: the Engine's folder.
        plugin: our plugin's folder.
        pid: of another process of the host.
    """

    folder: Path
    data: Path
    plugin: Path
    pid: int

    def node(self, name: str, minor: int = 0, major: int = 195) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o666 | 0o020000, os.makedev(major, minor))
        return path


@dataclass
class Attempt:
    """A container that is asked for, and what is done later.

    Attributes:
        host, config: of the request.
        probe: a script that prints REACHED in it.
        swap: of the host, before the start; or, with `again`, while it runs.
        again: how it starts a second time: `start`, or the policy that does it; empty for not at all.
        update: the policy comes by `docker update` when it runs.
        archive: a folder into which `docker cp` puts CHANGES, before it starts.
        ours: one of us must refuse it; else the Engine may, or it starts and reaches nothing.
        volume: that is made by a call of its own before.
    """

    host: dict[str, Any]
    probe: str
    config: dict[str, Any] = field(default_factory=dict)
    swap: Change | None = None
    again: str = ""
    update: bool = False
    archive: str = ""
    volume: dict[str, Any] | None = None
    ours: bool = False

    def body(self) -> dict[str, Any]:
        policy = self.again if self.again not in ("", "start") and not self.update else "no"
        host = {"NetworkMode": "none", "RestartPolicy": {"Name": policy}, **self.host}
        return {"Image": bypasses.IMAGE, "Cmd": ["sleep", "600"], **self.config, "HostConfig": host}


class Spelling:
    """Other ways to write a path; each leads the kernel to the same file."""

    def __init__(self, draw: random.Random, ground: Ground) -> None:
        self._draw, self._ground, self._links = draw, ground, 0

    def of(self, target: str) -> str:
        """Return a spelling by one to three steps; one that leads elsewhere is left out."""
        path = target
        for _ in range(self._draw.randint(1, 3)):
            step = self._draw.choice((self._chain, self._chain, self._below, self._up, self._host, self._process))
            found = step(path)
            if _same(found, target):
                path = found
        return self._slashes(path)

    def link(self, target: str) -> str:
        """Make a link to a path in a folder of its own, and return its path."""
        self._links += 1
        place = self._ground.folder / f"l{self._links}"
        (place / "in/deep").mkdir(parents=True)
        if self._draw.random() < 0.5:
            target = os.path.relpath(target, place)
        (place / "0").symlink_to(target)
        return f"{place}/0"

    def _chain(self, path: str) -> str:
        first = Path(self.link(path))
        length = self._draw.choice((1, 3, 9, 30))
        for number in range(1, length):
            way = self._draw.choice(("", "./", "in/../", "in/deep/../../", f"{first.parent}/"))
            (first.parent / str(number)).symlink_to(f"{way}{number - 1}")
        return str(first.parent / str(length - 1))

    def _below(self, path: str) -> str:
        """Go through a link to the folder above."""
        return f"{self.link(os.path.dirname(path))}/{os.path.basename(path)}"  # noqa: PTH119, PTH120

    def _up(self, path: str) -> str:
        """Go through a link to a folder beside or below it, and up again."""
        if not Path(path).is_dir():
            above = os.path.dirname(path)  # noqa: PTH120
            return f"{self._up(above)}/{os.path.basename(path)}"  # noqa: PTH119
        inside = [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        return f"{self.link(self._draw.choice(inside))}/.." if inside else path

    def _host(self, path: str) -> str:
        """Begin with a link of the host's, after which `..` goes elsewhere than the text says."""
        links = [link for link in ("/var/run", "/var/lock", "/bin", "/lib", "/sbin") if Path(link).is_symlink()]
        return f"{self._draw.choice(links)}{'/..' * self._draw.randint(1, 3)}{path}"

    def _process(self, path: str) -> str:
        ways = ("/proc/self/root", "/proc/thread-self/root", f"/proc/{self._ground.pid}/root", "/dev/fd/../root")
        return f"{self._draw.choice((*ways, f'/proc/{self._ground.pid}/cwd', '/dev/fd/../../..'))}{path}"

    def _slashes(self, path: str) -> str:
        return "".join(self._draw.choice(("//", "/./")) if c == "/" and self._draw.random() < 0.1 else c for c in path)


def _same(path: str, target: str) -> bool:
    try:
        return os.path.samefile(path, target)  # noqa: PTH121 - its text matters
    except OSError:
        return False


def device(path: str) -> dict[str, Any]:
    return {"Devices": [{"PathOnHost": path, "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]}


def shows(path: str) -> str:
    """Return a probe that tells whether a folder of the host is at /x."""
    status = Path(path).stat()
    return f'[ "$(stat -c %d:%i /x)" = {status.st_dev}:{status.st_ino} ] && echo REACHED'


def device_paths(draw: random.Random, ground: Ground) -> Attempt:
    """A device node of a GPU, or a folder of them, by another path; some beside what looks like a limit."""
    name = draw.choice(("gpu", "a/b/gpu", CDI, "nvidia0", "folder/gpu"))
    node = ground.node(name, draw.choice((0, 1, 254, 255)))
    target = str(node.parent if name == "folder/gpu" else node)
    path = Spelling(draw, ground).of(target)
    if draw.random() < 0.15:
        path = path.lstrip("/")
    dressings = (({}, {}), ({}, {"Env": [bypasses.HOOK]}), ({"Mounts": [bypasses.OURS]}, {}))
    host, config = draw.choice(dressings)
    return Attempt({"Runtime": draw.choice(RUNTIMES), **device(path), **host}, WITHOUT_HOOK, config)


def bind_paths(draw: random.Random, ground: Ground) -> Attempt:
    """A folder of the host's that guard refuses, by another path."""
    target = draw.choice(list(PROTECTED))
    path = Spelling(draw, ground).of(target)
    read_only = PROTECTED[target] and draw.random() < 0.5
    if draw.random() < 0.5:
        return Attempt({"Binds": [f"{path}:/x{':ro' if read_only else ''}"]}, shows(target))
    mount = {"Type": "bind", "Source": path, "Target": "/x", "ReadOnly": read_only}
    return Attempt({"Mounts": [mount]}, shows(target))


def local_volumes(draw: random.Random, ground: Ground) -> Attempt:
    """A volume of driver local that is such a folder, or a folder that a link leads to."""
    target = draw.choice(list(PROTECTED))
    options = {"type": draw.choice(("none", "")), "o": draw.choice(("bind", "rbind", "rw,bind", "bind,nosuid"))}
    options["device"] = Spelling(draw, ground).of(target)
    probe = shows(target)
    if draw.random() < 0.5:
        name = f"generated-{ground.folder.name}"
        made = {"Name": name, "Driver": draw.choice(("local", "")), "DriverOpts": options}
        return Attempt({"Binds": [f"{name}:/x"]}, probe, volume=made)
    config = {"Options": options} | draw.choice(({"Name": "local"}, {}))
    return Attempt({"Mounts": [{"Type": "volume", "Target": "/x", "VolumeOptions": {"DriverConfig": config}}]}, probe)


def linked_nodes(draw: random.Random, ground: Ground) -> Attempt:
    """A folder that leads to a GPU's node by links inside it, as a device."""
    node = ground.node("hidden/gpu")
    spelling = Spelling(draw, ground)
    inside = ground.folder / "given"
    inside.mkdir()
    (inside / "x").symlink_to(spelling.of(str(node)))
    if draw.random() < 0.5:
        ground.node("given/deep/er/gpu")
    return Attempt({"Runtime": draw.choice(RUNTIMES), **device(spelling.of(str(inside)))}, WITHOUT_HOOK)


def request_names(draw: random.Random, ground: Ground) -> Attempt:  # noqa: ARG001
    """A device request that reads like ours, or whose driver is written otherwise."""
    driver = draw.choice(("nvidia", "NVIDIA", "Nvidia", "", "cdi", "CDI", "Cdi", "convgpu", "amd"))
    ids = draw.choice(([CDI], [CDI, "nvidia.com/gpu=all"], ["nvidia.com/gpu=0", CDI], ["0", CDI], [f" {CDI}"]))
    if driver == "cdi" and ids == [CDI]:
        ids = [CDI, "0"]  # by itself that is how a limit is asked for
    row = {"Driver": driver, "DeviceIDs": ids, "Capabilities": draw.choice(([["gpu"]], [["compute"]], []))}
    hook = draw.choice(({}, {"Env": [bypasses.HOOK]}))
    runtime = draw.choice(RUNTIMES)
    # The Engines of the tests have no driver for GPUs, so what counts is that authorization refused it.
    ours = runtime == "runc" and driver != "cdi"
    return Attempt({"Runtime": runtime, "DeviceRequests": [row]}, "echo REACHED", hook, ours=ours)


def preload_names(draw: random.Random, ground: Ground) -> Attempt:
    """Another file as ours at /etc/ld.so.preload, in a folder that is named like a plugin's."""
    made_up = f"plugins/{secrets.token_hex(32)}/propagated-mount"
    top = ground.folder / made_up
    top.mkdir(parents=True)
    (top / "ld.so.preload").write_text("")
    data = f"{ground.data}/{made_up}"
    files = (f"{top}/ld.so.preload", f"{ground.plugin}/../../../..{top}/ld.so.preload", f"{data}/ld.so.preload")
    others = (f"{ground.plugin}/libconvgpu.so", f"{ground.plugin}/driver/devices")
    source = draw.choice((*files, *others, Spelling(draw, ground).of(f"{top}/ld.so.preload")))
    gpu = device(str(ground.node("gpu")))
    mount = {"Type": "bind", "Source": source, "Target": "/etc/ld.so.preload", "ReadOnly": True}
    return Attempt({"Runtime": draw.choice(RUNTIMES), "Mounts": [bypasses.OURS, mount], **gpu}, WITHOUT_HOOK)


def other_names(draw: random.Random, ground: Ground) -> Attempt:
    """A volume that is named like one of ours, or a runtime by another name, beside a GPU."""
    gpu = device(str(ground.node("gpu")))
    rows = [
        {"Name": "local", "Options": {}},
        {"Name": "", "Options": {}},
        {"Name": "convgpu:other", "Options": {"memory": "1g"}},
        {"Name": "ConvGPU", "Options": {"memory": "1g"}},
        {"Name": "local", "Options": {"memory": "1g"}},
    ]
    volume = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": draw.choice(rows)}}
    if draw.random() < 0.5:
        volume["Source"] = draw.choice(("convgpu", "convgpu_convgpu", "a" * 64))
    runtime = draw.choice(("", "runc", "io.containerd.runc.v2", "nvidia", "other"))
    return Attempt({"Runtime": runtime, "Mounts": [volume], **gpu}, WITHOUT_HOOK, {"Env": [bypasses.HOOK]})


def variables(draw: random.Random, ground: Ground) -> Attempt:  # noqa: ARG001
    """A runtime that reads variables, which name devices that read like ours."""
    name = draw.choice(("NVIDIA_VISIBLE_DEVICES", "DOCKER_RESOURCE_GPU", "DOCKER_RESOURCE_NVIDIA_GPU"))
    value = draw.choice(("all", CDI, f"{CDI},0", "VOID", "None", " none", "0,void", "nvidia.com/gpu=all"))
    host = {"Runtime": draw.choice(("nvidia", "other"))}
    return Attempt(host, "echo REACHED", {"Env": [f"{name}={value}", bypasses.HOOK]})


def swapped_devices(draw: random.Random, ground: Ground) -> Attempt:
    """A device that becomes a GPU's when the container was judged: by a link, a folder, or a node made anew."""
    ground.node("gpus/x")
    (ground.folder / "harmless").mkdir()
    ground.node("harmless/x", 5, 1)
    kind = draw.choice(("link", "folder", "node"))
    path = ground.folder / "mine/x"
    if kind == "node":
        (ground.folder / "mine").symlink_to("harmless")
    else:
        (ground.folder / "mine").symlink_to(draw.choice(("harmless", f"{ground.folder}/harmless", "gpus/../harmless")))

    def swap() -> None:
        if kind == "node":
            path.unlink()
            ground.node("harmless/x")
        elif kind == "folder":
            (ground.folder / "harmless").rename(ground.folder / "away")
            (ground.folder / "gpus").rename(ground.folder / "harmless")
            (ground.folder / "gpus").mkdir()  # a link may go through it
        else:
            (ground.folder / "new").symlink_to("gpus")
            (ground.folder / "new").replace(ground.folder / "mine")

    again = draw.choice(("", "start", "always", "on-failure", "unless-stopped"))
    runtime = draw.choice(RUNTIMES) if again in ("", "start") else ""  # of others the documents promise nothing
    update = again not in ("", "start") and draw.random() < 0.5
    asked = device(draw.choice((f"{path}", f"{path}", f"{path.parent}/")))
    return Attempt({"Runtime": runtime, **asked}, WITHOUT_HOOK, swap=swap, again=again, update=update)


def swapped_binds(draw: random.Random, ground: Ground) -> Attempt:
    """A folder that is led to the host's own when the container was judged."""
    target = draw.choice(list(PROTECTED))
    (ground.folder / "harmless").mkdir()
    (ground.folder / "mine").symlink_to("harmless")

    def swap() -> None:
        (ground.folder / "new").symlink_to(Spelling(draw, ground).of(target))
        (ground.folder / "new").replace(ground.folder / "mine")

    again = draw.choice(("", "start"))
    if draw.random() < 0.5:
        options = {"type": "none", "o": "bind", "device": f"{ground.folder}/mine"}
        config = {"DriverConfig": {"Name": "local", "Options": options}}
        mount = {"Type": "volume", "Target": "/x", "VolumeOptions": config}
        return Attempt({"Mounts": [mount]}, shows(target), swap=swap, again=again)
    return Attempt({"Binds": [f"{ground.folder}/mine:/x"]}, shows(target), swap=swap, again=again)


def copies(draw: random.Random, ground: Ground) -> Attempt:
    """Files and links into a container that is only created, at the places of the hook; also by links of its image.

    What lands behind a link of the image undoes nothing by itself: the image could have brought it.
    """
    places = ("/etc", "/etc/.", "//etc", "/tmp/../etc", "/run/../etc", "etc", "/run/convgpu", "/var/run/convgpu", "/")
    linked = ("/to-etc", "/to-etc/.", "/to-root/etc", "/to-root/to-etc", "/tmp/../to-etc", "/a/b/far", "/to-root")
    place = draw.choice((*places, *linked, "/to-run", "/to-run/convgpu"))
    mount = {"Type": "bind", "Source": f"{ground.plugin}/ld.so.preload", "Target": "/etc/ld.so.preload"}
    by_file = {"Mounts": [bypasses.OURS, {**mount, "ReadOnly": True}]}, {}
    by_variable = {"Mounts": [bypasses.OURS]}, {"Env": [bypasses.HOOK]}
    host, config = draw.choice((by_file, by_variable))
    gpu = device(str(ground.node("gpu")))
    return Attempt({**host, **gpu}, WITHOUT_HOOK, {"Image": LINKED, **config}, archive=place)


def archive() -> bytes:
    """Return what `docker cp` sends: links in the place of what the hook needs, wherever it is unpacked."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, target in CHANGES.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return out.getvalue()


FAMILIES: dict[str, Callable[[random.Random, Ground], Attempt]] = {
    "paths of devices": device_paths,
    "paths of binds": bind_paths,
    "links to volumes": local_volumes,
    "links to nodes": linked_nodes,
    "names of requests": request_names,
    "names of preloads": preload_names,
    "names of volumes": other_names,
    "names in variables": variables,
    "times of devices": swapped_devices,
    "times of binds": swapped_binds,
    "times of copies": copies,
}
