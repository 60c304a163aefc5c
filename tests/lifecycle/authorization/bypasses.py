"""Tables of attempts to get a GPU without a limit, to get the host, or to bypass the hook.

A way is what is asked for, with a look at what the Engine made of it. Spellings say the same in other words. An attempt
is a way in a spelling.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raw_engine import Call

CREATE = "/v1.41/containers/create"
IMAGE = "convgpu/demo"
CUDA_IMAGE = "cuda-like"  # has NVIDIA_VISIBLE_DEVICES=all in its environment
DISGUISED = "disguised"  # a volume of driver local that is a bind of the host's root
DONOR = "donor"  # a container with the host's root mounted
COVER_DONOR = "cover-donor"  # a container with a folder where the system's libraries are
THEIRS = "theirs"  # a volume of ours that somebody else uses
PART_DONOR = "part-donor"  # a container that has a part of it where the hook belongs
LINKS = Path(f"/tmp/convgpu-bypasses-{os.getpid()}")  # links and a device node of the host

Look = Callable[[dict[str, Any]], bool]
Version = tuple[int, int]

GPUS = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
OURS = {
    "Type": "volume",
    "Target": "/run/convgpu",
    "VolumeOptions": {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "1g"}}},
}
LIMITED = {**GPUS, "Mounts": [OURS]}
HOOK = "LD_PRELOAD=/run/convgpu/libconvgpu.so"
VISIBLE = "NVIDIA_VISIBLE_DEVICES=all"


@dataclass(frozen=True)
class Way:
    """A request, a test whether its container got the request, and the first Engine that knows its fields."""

    name: str
    look: Look
    host: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    since: Version = (0, 0)

    def body(self) -> dict[str, Any]:
        return {"Image": IMAGE, "Cmd": ["true"], **self.config, "HostConfig": self.host}


@dataclass(frozen=True)
class Attempt:
    """A call that creates a container, and its test; Engines from `before` on refuse or read it otherwise."""

    name: str
    call: Call
    look: Look
    before: Version = (99, 0)


def host_has(key: str) -> Look:
    return lambda seen: bool(seen["HostConfig"].get(key))


def mounts(source: str) -> Look:
    """Tell whether a path of the host is mounted, as a bind or by a volume."""
    return lambda seen: any(row["Source"].rstrip("/") == source.rstrip("/") for row in seen["Mounts"])


def mounts_volume(name: str) -> Look:
    return lambda seen: any(row.get("Name") == name for row in seen["Mounts"])


def covers(target: str) -> Look:
    return lambda seen: (
        any(row["Destination"] == target for row in seen["Mounts"]) or target in (seen["HostConfig"]["Tmpfs"] or {})
    )


def without_hook(seen: dict[str, Any]) -> bool:
    found = {}
    for row in seen["Config"]["Env"] or []:
        name, equals, value = row.partition("=")
        found[name] = value if equals else None
    return not (found.get("LD_PRELOAD") or "").startswith("/run/convgpu/libconvgpu.so") or bool(
        found.keys() & {"LD_AUDIT", "CONVGPU_SOCKET"}
    )


def gpu_ways() -> Iterator[Way]:
    requests = {
        "gpus": {"Count": -1, "Capabilities": [["gpu"]]},
        "gpus-empty": {},
        "gpus-nvidia": {"Driver": "nvidia", "Count": 1, "Capabilities": [["gpu"]]},
        "gpus-ids": {"Driver": "nvidia", "DeviceIDs": ["0"], "Capabilities": [["compute"]]},
        "gpus-cdi": {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]},
        "gpus-amd": {"Driver": "amd", "Count": -1, "Capabilities": [["gpu"]]},
    }
    for name, row in requests.items():
        yield Way(name, host_has("DeviceRequests"), {"DeviceRequests": [row]})
    devices = {
        "device": "/dev/nvidia0",
        "device-control": "/dev/nvidiactl",
        "device-uvm": "/dev/nvidia-uvm",
        "device-caps": "/dev/nvidia-caps/nvidia-cap1",
        "device-dots": "/dev/../dev/./nvidia0",
        "device-slashes": "//dev///nvidia0",
        "device-folder": "/dev",
        "device-folder-slash": "/dev/",
        "device-link": f"{LINKS}/link-to-node",
        "device-node": f"{LINKS}/node",
        "device-cdi": "nvidia.com/gpu=all",
    }
    for name, path in devices.items():
        row = {"PathOnHost": path, "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
        yield Way(name, host_has("Devices"), {"Devices": [row]})
    for rule in ("c 195:* rwm", "c 195:0 rw", "c *:* rwm", "a *:* rwm"):
        yield Way(f"cgroup-rule {rule}", host_has("DeviceCgroupRules"), {"DeviceCgroupRules": [rule]})
    yield Way("bind-node", mounts("/dev/null"), {"Binds": ["/dev/null:/var/run/nvidia-container-devices/all"]})
    yield Way("bind-node-run", mounts("/dev/null"), {"Binds": ["/dev/null:/run/nvidia-container-devices/0"]})
    nvidia = {"Runtime": "nvidia"}

    def sees(seen: dict[str, Any]) -> bool:
        return seen["HostConfig"]["Runtime"] != "runc" and VISIBLE in seen["Config"]["Env"]

    yield Way("runtime", sees, nvidia, {"Env": [VISIBLE]})
    yield Way("runtime-bare", sees, nvidia, {"Env": [VISIBLE, "NVIDIA_VISIBLE_DEVICES"]})
    yield Way("runtime-late", sees, nvidia, {"Env": ["NVIDIA_VISIBLE_DEVICES=void", VISIBLE]})
    yield Way("runtime-image", sees, nvidia, {"Image": CUDA_IMAGE})
    yield Way("runtime-image-other", sees, {"Runtime": "other"}, {"Image": CUDA_IMAGE})
    yield Way(
        "runtime-swarm",
        lambda seen: seen["HostConfig"]["Runtime"] == "nvidia",
        nvidia,
        {"Env": ["DOCKER_RESOURCE_GPU=GPU-1"]},
    )


def host_ways() -> Iterator[Way]:
    yield Way("privileged", host_has("Privileged"), {"Privileged": True})
    for name in (
        "SYS_ADMIN",
        "CAP_SYS_ADMIN",
        "cap_sys_admin",
        "ALL",
        "all",
        "SYS_MODULE",
        "SYS_RAWIO",
        "DAC_READ_SEARCH",
    ):
        yield Way(f"capability {name}", host_has("CapAdd"), {"CapAdd": [name]})
    yield Way("capability as text", host_has("CapAdd"), {"CapAdd": "SYS_ADMIN"})
    yield Way("pid", lambda seen: seen["HostConfig"]["PidMode"] == "host", {"PidMode": "host"})
    yield Way("open proc", lambda seen: seen["HostConfig"]["ReadonlyPaths"] == [], {"ReadonlyPaths": []})
    yield Way(
        "half open proc", lambda seen: len(seen["HostConfig"]["ReadonlyPaths"]) == 1, {"ReadonlyPaths": ["/proc/fs"]}
    )
    for path in ("/", "/etc", "/run", "/run/docker", "/proc", "/sys", "/usr", "/boot", "/sys/fs/cgroup", "/var/run"):
        yield Way(f"bind {path}", mounts(path), {"Binds": [f"{path}:/x"]})
    for path in ("/", "/run", "/run/docker/plugins"):
        yield Way(f"bind {path} read-only", mounts(path), {"Binds": [f"{path}:/x:ro"]})
        yield Way(f"mount {path}", mounts(path), {"Mounts": [{"Type": "bind", "Source": path, "Target": "/x"}]})
    for path in ("//etc", "/tmp/../etc", "/etc/", "/etc/./docker/.."):
        yield Way(
            f"bind {path}", lambda seen: any(row["Type"] == "bind" for row in seen["Mounts"]), {"Binds": [f"{path}:/x"]}
        )
    for name in ("link-to-root", "link-to-run", "link-to-link"):
        yield Way(f"bind {name}", mounts(f"{LINKS}/{name}"), {"Binds": [f"{LINKS}/{name}:/x"]})
    yield Way("bind below a link", mounts(f"{LINKS}/link-to-root/etc"), {"Binds": [f"{LINKS}/link-to-root/etc:/x"]})
    for name, options in DISGUISES.items():
        volume = {
            "Type": "volume",
            "Target": "/x",
            "VolumeOptions": {"DriverConfig": {"Name": "local", "Options": options}},
        }
        yield Way(f"volume {name}", lambda seen: len(seen["Mounts"]) == 1, {"Mounts": [volume]})
        unnamed = {"Type": "volume", "Target": "/x", "VolumeOptions": {"DriverConfig": {"Options": options}}}
        yield Way(f"volume {name} unnamed", lambda seen: len(seen["Mounts"]) == 1, {"Mounts": [unnamed]})
    yield Way("existing volume", mounts_volume(DISGUISED), {"Binds": [f"{DISGUISED}:/x"]})
    yield Way(
        "existing volume by mount",
        mounts_volume(DISGUISED),
        {"Mounts": [{"Type": "volume", "Source": DISGUISED, "Target": "/x"}]},
    )
    yield Way("volumes from", mounts("/etc"), {"VolumesFrom": [DONOR]})
    yield Way("volumes from read-only", mounts("/etc"), {"VolumesFrom": [f"{DONOR}:rw"]})


DISGUISES = {
    "bind": {"type": "none", "o": "bind", "device": "/"},
    "rbind": {"type": "", "o": "rw,rbind", "device": "/etc"},
    "disk": {"type": "ext4", "device": "/dev/vda"},
    "cgroup": {"type": "cgroup", "o": "devices", "device": "cgroup"},
    "proc": {"type": "proc", "device": "proc"},
    "overlay": {"type": "overlay", "device": "overlay", "o": "lowerdir=/:/etc"},
    "read-only at its top": {"type": "none", "o": "rbind,ro", "device": "/sys"},
}


def hook_ways() -> Iterator[Way]:
    variables = {
        "no preload": [],
        "another preload": ["LD_PRELOAD=/lib/other.so"],
        "another first": ["LD_PRELOAD=/lib/other.so:/run/convgpu/libconvgpu.so"],
        "another first, space": ["LD_PRELOAD=/lib/other.so /run/convgpu/libconvgpu.so"],
        "preload emptied": [HOOK, "LD_PRELOAD="],
        "preload taken back": [HOOK, "LD_PRELOAD=/x"],
        "name like ours": ["LD_PRELOAD=/run/convgpu2/libconvgpu.so"],
        "audit": [HOOK, "LD_AUDIT=/x.so"],
        "another scheduler": [HOOK, "CONVGPU_SOCKET=/tmp/s"],
    }
    for name, rows in variables.items():
        yield Way(name, without_hook, LIMITED, {"Env": rows})
    for target in (
        "/etc/ld.so.preload",
        "/run/convgpu/libconvgpu.so",
        "/var/run/convgpu/x",
        "/usr/lib",
        "/lib64",
        "/etc/ld.so.cache",
        "/etc",
        "/usr",
    ):
        host = {**LIMITED, "Binds": [f"{LINKS}/folder:{target}"]}
        yield Way(f"bind over {target}", covers(target), host, {"Env": [HOOK]})
    for target in ("/run/convgpu/driver", "/usr/lib/x86_64-linux-gnu", "/etc"):
        yield Way(f"tmpfs over {target}", covers(target), {**LIMITED, "Tmpfs": {target: ""}}, {"Env": [HOOK]})
    yield Way("anonymous over", covers("/run/convgpu/x"), LIMITED, {"Env": [HOOK], "Volumes": {"/run/convgpu/x": {}}})
    other = {**OURS, "VolumeOptions": {"DriverConfig": {"Name": "local", "Options": {}}}}
    yield Way("another driver", host_has("DeviceRequests"), {**GPUS, "Mounts": [other]}, {"Env": [HOOK]})
    isolation = {
        "ipc": {"IpcMode": "host"},
        "ptrace": {"CapAdd": ["SYS_PTRACE"]},
        "seccomp": {"SecurityOpt": ["seccomp=unconfined"]},
        "seccomp colon": {"SecurityOpt": ["seccomp:unconfined"]},
        "apparmor": {"SecurityOpt": ["apparmor=unconfined"]},
        "pid of another": {"PidMode": f"container:{DONOR}"},
        "ipc of another": {"IpcMode": f"container:{DONOR}"},
        "users": {"UsernsMode": "host"},
        "cgroup of another": {"CgroupParent": f"/docker/{'a' * 64}"},
    }
    for name, host in isolation.items():
        yield Way(f"isolation {name}", host_has(next(iter(host))), {**LIMITED, **host}, {"Env": [HOOK]})
    elsewhere = {**GPUS, "Mounts": [{**OURS, "Target": "/var/run/convgpu"}]}
    yield Way("where an image may have a link", covers("/var/run/convgpu"), elsewhere, {"Env": [HOOK]})
    yield Way("volumes from over", covers("/usr/lib"), {**LIMITED, "VolumesFrom": [COVER_DONOR]}, {"Env": [HOOK]})


def part(target: str, subpath: str) -> dict[str, Any]:
    """Mount a part of another user's ConvGPU volume."""
    return {"Type": "volume", "Source": THEIRS, "Target": target, "VolumeOptions": {"Subpath": subpath}}


def newer_ways() -> Iterator[Way]:
    yield Way(
        "annotation", host_has("Annotations"), {"Annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}}, {}, (24, 0)
    )
    for path in ("/sys", "/proc"):
        top = {"Type": "bind", "Source": path, "Target": "/x", "ReadOnly": True}
        host = {"Mounts": [{**top, "BindOptions": {"ReadOnlyNonRecursive": True}}]}
        yield Way(f"mount {path} read-only at its top", mounts(path), host, {}, (25, 0))
    for target, subpath in (
        ("/run/convgpu/libconvgpu.so", "ld.so.preload"),
        ("/run/convgpu/scheduler.sock", "scheduler.sock"),
        ("/usr/lib/x86_64-linux-gnu", "driver"),
        ("/etc/ld.so.preload", "libconvgpu.so"),
    ):
        host = {**GPUS, "Mounts": [OURS, part(target, subpath)]}
        yield Way(f"part over {target}", covers(target), host, {"Env": [HOOK]}, (26, 0))
    for subpath in ("driver", "."):
        host = {**GPUS, "Mounts": [part("/run/convgpu", subpath)]}
        yield Way(f"part {subpath} for the whole", mounts_volume(THEIRS), host, {"Env": [HOOK]}, (26, 0))
    host = {**GPUS, "VolumesFrom": [PART_DONOR]}
    yield Way("part from another container", mounts_volume(THEIRS), host, {"Env": [HOOK]}, (26, 0))
    for target in ("/run/convgpu/driver", "/usr/lib", "/lib64"):
        host = {**GPUS, "Mounts": [OURS, {"Type": "image", "Source": IMAGE, "Target": target}]}
        yield Way(f"image over {target}", covers(target), host, {"Env": [HOOK]}, (28, 0))
    file = {
        "Type": "image",
        "Source": IMAGE,
        "Target": "/etc/ld.so.preload",
        "ImageOptions": {"Subpath": "etc/hostname"},
    }
    host = {**GPUS, "Mounts": [OURS, file]}
    yield Way("file of an image over /etc/ld.so.preload", covers(file["Target"]), host, {"Env": [HOOK]}, (28, 0))
    image = {"Type": "image", "Source": IMAGE, "Target": "/run/convgpu"}
    yield Way("image for the volume", covers("/run/convgpu"), {**GPUS, "Mounts": [image]}, {"Env": [HOOK]}, (28, 0))
    image = {**image, "Target": "/var/run/nvidia-container-devices/all"}
    yield Way("image as list of devices", covers(image["Target"]), {"Mounts": [image]}, {}, (28, 0))
    yield Way("writable cgroups", host_has("SecurityOpt"), {"SecurityOpt": ["writable-cgroups=true"]}, {}, (28, 0))


URIS = {
    "no version": "/containers/create",
    "old version": "/v1.25/containers/create",
    "long version": "/v1.41.0/containers/create",
    "zero version": "/v01.41/containers/create",
    "encoded letter": "/v1.41/containers/%63reate",
    "encoded slash": "/v1.41/containers%2Fcreate",
    "encoded version": "/%761.41/containers/create",
    "all encoded": "/v1.41/%63%6f%6e%74%61%69%6e%65%72%73/%63%72%65%61%74%65",
    "absolute": "http://docker/v1.41/containers/create",
    "absolute with user": "http://a:b@docker:80/v1.41/containers/create",
    "query": f"{CREATE}?x=/auth",
    "unnamed": f"{CREATE}?name=",
    "platform": f"{CREATE}?platform=",
}
NEWER_URIS = {
    "version of 26": ("/v1.45/containers/create", (26, 0)),
    "version of 28": ("/v1.51/containers/create", (28, 5)),
}


def spell_body(body: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Return another spelling that Go's JSON decoder reads alike."""
    host = json.dumps(body["HostConfig"])
    rest = json.dumps({key: value for key, value in body.items() if key != "HostConfig"})[1:-1]

    def whole(*parts: str) -> bytes:
        return ("{" + ", ".join([rest, *parts]) + "}").encode()

    yield "lower", json.dumps(body).replace('"HostConfig"', '"hostconfig"').encode()
    yield "upper", json.dumps(body).replace('"HostConfig"', '"HOSTCONFIG"').encode()
    yield "long s", whole(f'"Ho\u017ftConfig": {host}')
    yield "escapes", whole(f'"\\u0048ost\\u0043onfig": {host}')
    yield "merged twice", whole('"HostConfig": {"Memory": 0}', f'"HostConfig": {host}')
    yield "merged first", whole(f'"HostConfig": {host}', '"HostConfig": {"Memory": 0}')
    yield "other case wins", whole('"HostConfig": {}', f'"hostConfig": {host}')
    if all(isinstance(value, bool) for value in body["HostConfig"].values()):  # a list would be emptied
        nulls = ", ".join(f'"{key.lower()}": null' for key in body["HostConfig"])
        yield "null afterwards", whole(f'"HostConfig": {host[:-1]}, {nulls}}}')
    yield "top level", ("{" + ", ".join([rest, host[1:-1]]) + "}").encode()
    yield "trailing", whole(f'"HostConfig": {host}') + b" garbage"
    yield "second document", whole(f'"HostConfig": {host}') + b'{"HostConfig": {}}'
    yield "invalid UTF-8", whole('"Domainname": "x"', f'"HostConfig": {host}').replace(b'"x"', b'"\xff"')
    yield "white space", b" \n\t" + whole(f'"HostConfig": {host}') + b"\n" * 100
    yield "padded", whole('"Labels": {"x": "' + "x" * (1 << 21) + '"}', f'"HostConfig": {host}')
    yield "padded more", whole('"Labels": {"x": "' + "x" * (5 << 20) + '"}', f'"HostConfig": {host}')


HEADERS = {
    "charset": {"Content-Type": "application/json; charset=utf-8"},
    "upper-case type": {"Content-Type": "APPLICATION/JSON"},
}


# The first Engines that refuse these spellings, or read them otherwise; of what came with an Engine see `newer_ways`.
REFUSED_SINCE = {"trailing": (23, 0), "second document": (23, 0), "top level": (28, 0)}


def attempts(engine: Version) -> Iterator[Attempt]:
    """Return all attempts that this version understands: each in plain form, and some in every spelling."""
    ways = [*gpu_ways(), *host_ways(), *hook_ways()]
    for way in ways:
        yield Attempt(way.name, Call("POST", CREATE, way.body()), way.look)
    for way in newer_ways():
        if way.since <= engine:
            # Without a version it is the Engine's newest, which alone knows the words.
            yield Attempt(way.name, Call("POST", "/containers/create", way.body()), way.look)
    for way in ways:
        if way.name in {"gpus", "privileged", "bind /etc"}:
            yield from spell(way, engine)


def spell(way: Way, engine: Version) -> Iterator[Attempt]:
    """Return an attempt in every spelling."""
    for name, uri in {**URIS, **{name: uri for name, (uri, since) in NEWER_URIS.items() if since <= engine}}.items():
        yield Attempt(f"{way.name}: {name}", Call("POST", uri, way.body()), way.look)
    for name, raw in spell_body(way.body()):
        before = REFUSED_SINCE.get(name, (99, 0))
        yield Attempt(f"{way.name}: {name}", Call("POST", CREATE, raw), way.look, before)
    for name, headers in HEADERS.items():
        yield Attempt(f"{way.name}: {name}", Call("POST", CREATE, way.body(), headers), way.look)
    yield Attempt(f"{way.name}: chunked", Call("POST", CREATE, way.body(), chunked=True), way.look)
