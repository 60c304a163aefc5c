"""A sample site with strict rules: its list, its innocents, and attempts of each class to get more.

Used on a judge with fakes of its ports (tests/plugin/authz) and on real Engines.
"""

import random
from collections.abc import Iterator
from typing import Any

TOP = "/srv/convgpu-tests"  # on real Engines it is made, and removed
DATA = f"{TOP}/data"
TOOLS = f"{TOP}/tools"

RULES = f"""
mode = "strict"
default_limit = "1g"

[strict]
paths = ["{DATA}", "{TOOLS}:ro", "/etc/passwd:ro"]
capabilities = ["NET_ADMIN"]
namespaces = ["network=host"]
devices = ["/dev/fuse", "c 188:* rwm"]
volumes = ["tmpfs"]
sysctls = ["net.core.somaxconn"]
calls = ["commit"]
accept = ["removal"]
"""

Host = dict[str, Any]


def mount(kind: str, source: str, **more: Any) -> Host:
    return {"Mounts": [{"Type": kind, "Source": source, "Target": "/x", **more}]}


def local(**options: str) -> Host:
    return mount("volume", "", VolumeOptions={"DriverConfig": {"Name": "local", "Options": options}})


def device(path: str) -> Host:
    return {"Devices": [{"PathOnHost": path, "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]}


INNOCENTS: dict[str, Host] = {
    "nothing": {},
    "nulls": {"Binds": None, "Mounts": None, "Devices": None, "CapAdd": None, "SecurityOpt": None, "Sysctls": None},
    "data": {"Binds": [f"{DATA}:/data"], **mount("bind", f"{DATA}/run-7")},
    "data read-only": mount("bind", f"{DATA}/run-7", ReadOnly=True),
    "tools": {"Binds": [f"{TOOLS}:/opt/tools:ro"]},
    "users": mount("bind", "/etc/passwd", ReadOnly=True),
    "volumes": {"Binds": ["cache:/cache:nocopy", "/anonymous"], "Tmpfs": {"/tmp": "size=1m"}},
    "volume as tmpfs": local(type="tmpfs", device="tmpfs", o="size=1m"),
    "limits": {"Memory": 1 << 28, "NanoCpus": 10**9, "PidsLimit": 100, "ShmSize": 1 << 27},
    "network": {"NetworkMode": "host", "CapAdd": ["NET_ADMIN"], "CapDrop": ["ALL"]},
    "sysctl": {"Sysctls": {"net.core.somaxconn": "511"}},
    "fuse": device("/dev/fuse"),
    "serial line": {"DeviceCgroupRules": ["c 188:* rwm"]},
    "restart": {"RestartPolicy": {"Name": "always"}},
    "log": {
        "LogConfig": {
            "Type": "json-file",
            "Config": {"max-size": "10m", "max-file": "5", "tag": "{{.Name}}/{{.ID}}", "labels": "team"},
        }
    },
    "security": {"SecurityOpt": ["no-new-privileges"], "ReadonlyRootfs": True, "Init": True},
    "ipc": {"IpcMode": "private", "CgroupnsMode": "private"},
    "masks": {"MaskedPaths": None, "ReadonlyPaths": None},
}


def _paths(draw: random.Random) -> Iterator[tuple[str, Host]]:
    """Binds of what is not listed, in the forms of requests and in spellings of paths."""
    tops = ("/", "/etc", "/root", "/usr/local/sbin", "/home", "/var/lib/docker", "/srv", TOP, "/etc/cron.daily")
    for top in tops:
        for path in (top, f"/{top}", f"{top}/.", f"{DATA}/../../..{top}", f"{top}/x/.."):
            mode = draw.choice(("", ":ro", ":rw", ":z"))
            yield f"bind {path}{mode}", {"Binds": [f"{path}:/x{mode}"]}
        yield f"mount {top}", mount("bind", top, ReadOnly=draw.random() < 0.5)
        yield f"volume of {top}", local(type="none", o=draw.choice(("bind", "rbind,ro")), device=top)
    for path in (f"{DATA}2", "/srv/lab/dat", TOOLS, f"{TOOLS}/bin", "/etc/passwd"):
        yield f"bind {path} writable", {"Binds": [f"{path}:/x"]}
    yield "read-only at its top", mount("bind", TOOLS, ReadOnly=True, BindOptions={"ReadOnlyNonRecursive": True})


def _namespaces() -> Iterator[tuple[str, Host]]:
    modes = {"PidMode": "pid", "IpcMode": "ipc", "UTSMode": "uts", "UsernsMode": "userns"}
    for field in modes:
        yield f"{field} host", {field: "host"}
    for field in ("PidMode", "IpcMode", "NetworkMode"):
        yield f"{field} of another", {field: "container:other"}
    yield "cgroup of another", {"CgroupParent": "/teams"}


def _devices() -> Iterator[tuple[str, Host]]:
    for path in ("/dev/kvm", "/dev", "/dev/sda", "/dev/net/tun", "/dev/fuse/../kvm", "/dev/mem", "//dev/vda"):
        yield f"device {path}", device(path)
    for rule in ("c 188:* rw", "a *:* rwm", "b 8:0 r", "c 10:200 rwm"):
        yield f"rule {rule}", {"DeviceCgroupRules": [rule]}
    by_capability = {"Capabilities": [["cdi"]], "DeviceIDs": ["vendor.com/x=1"]}
    yield "request by capability", {"DeviceRequests": [by_capability]}
    for driver, names in (("cdi", ["vendor.com/x=1"]), ("amd", []), ("cdi", ["convgpu.io/memory=1g", "a.b/c=d"])):
        yield f"request {driver} {names}", {"DeviceRequests": [{"Driver": driver, "DeviceIDs": names, "Count": 1}]}


def _options() -> Iterator[tuple[str, Host]]:
    for name in ("SYS_PTRACE", "cap_mknod", "NET_RAW", "SYS_ADMIN", "ALL", "CHECKPOINT_RESTORE"):
        yield f"capability {name}", {"CapAdd": [name]}
    for option in (
        "seccomp=unconfined",
        "apparmor=unconfined",
        "label=disable",
        "systempaths=unconfined",
        "seccomp={}",
    ):
        yield f"security {option}", {"SecurityOpt": [option]}
        yield f"security {option} colon", {"SecurityOpt": [option.replace("=", ":", 1)]}
    for name in ("kernel.shm_rmid_forced", "net.ipv4.ip_forward", "kernel.core_pattern"):
        yield f"sysctl {name}", {"Sysctls": {name: "1"}}
    for name in ("runc", "nvidia", "other", "io.containerd.runc.v2", "/usr/sbin/runc"):
        yield f"runtime {name}", {"Runtime": name}
        yield f"runtime {name} again", {"Runtime": name, "RestartPolicy": {"Name": "always"}}
    yield "privileged", {"Privileged": True}
    yield "log driver", {"LogConfig": {"Type": "syslog", "Config": {"syslog-address": "unix:///run/x.sock"}}}
    yield "annotation", {"Annotations": {"run.oci.x": "1"}}
    yield "field of tomorrow", {"OpenEverything": True}


def _proc() -> Iterator[tuple[str, Host]]:
    all_read_only = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
    for paths in ([], ["/proc/sys"], ["/nowhere/..", *(f"/nowhere/..{path}" for path in all_read_only)]):
        yield f"read-only {paths[:2]}", {"ReadonlyPaths": paths}
    for paths in ([], ["/proc/kcore"], ["/x/../proc/kcore", "/proc/keys"]):
        yield f"masked {paths[:1]}", {"MaskedPaths": paths}
    for path in ("/proc", "/sys", "/sys/fs/cgroup", "/proc/1/root", f"/proc/self/root{DATA}"):
        yield f"bind {path} read-only", {"Binds": [f"{path}:/x:ro"]}


def _volumes() -> Iterator[tuple[str, Host]]:
    yield "another driver", {"Binds": ["v:/x"], "VolumeDriver": "vieux/sshfs"}
    yield "another driver by mount", mount("volume", "", VolumeOptions={"DriverConfig": {"Name": "sshfs"}})
    for options in (
        {"type": "nfs", "device": ":/x", "o": "addr=127.0.0.1"},
        {"type": "ext4", "device": "/dev/vda"},
        {"type": "overlay", "device": "overlay", "o": "lowerdir=/:/etc"},
        {"type": "none", "o": "bind", "device": DATA},
    ):
        yield f"volume {options['type']} {options['device']}", local(**options)
    for mode in ("", ":ro", ":rw,z"):
        yield f"volume that is filled{mode}", {"Binds": [f"vol1:/x{mode}"]}
    yield "mount of a volume that is filled", mount("volume", "vol1")
    yield "volume without a name by the Engine's", {"Binds": [f"{'0a' * 32}:/x:nocopy"]}
    yield "mount of a kind of tomorrow", mount("wormhole", "/")
    yield "mount of an image", mount("image", "convgpu/demo")
    yield "part of a volume", mount("volume", "vol1", VolumeOptions={"NoCopy": True, "Subpath": "link"})


def _logs(draw: random.Random) -> Iterator[tuple[str, Host]]:
    """By these the Engine itself takes any time or memory."""
    options = [
        ("tag", f'{{{{pad "x" {1 << 46} 0}}}}'),
        ("tag", "{{.ID}}{{join .ContainerEnv .ContainerName}}"),
        ("tag", "{{.Command}}"),
        ("tag", "{{.Name}}" * 30),
        ("max-file", str(draw.randint(101, 20_000_000))),
        ("max-file", "+1000000"),
        ("max-file", "000000000020000000"),
        ("max-size", f"{draw.randint(1, 60)}k"),
        ("max-size", "0x400"),
        ("max-buffer-size", f"{draw.randint(1, 60)}g"),
        ("of-tomorrow", "1"),
    ]
    for name, value in options:
        host = {"LogConfig": {"Type": draw.choice(("json-file", "local")), "Config": {name: value}}}
        yield f"{name} {value}", host


CLASSES = ("paths", "namespaces", "devices", "options", "proc", "volumes", "logs")


def attempts(seed: int = 1) -> dict[str, Host]:
    """Return attempts of each class; another seed, other ones."""
    draw = random.Random(seed)  # noqa: S311 - spellings of attempts
    found: dict[str, Host] = {}
    for name, made in (
        ("paths", _paths(draw)),
        ("namespaces", _namespaces()),
        ("devices", _devices()),
        ("options", _options()),
        ("proc", _proc()),
        ("volumes", _volumes()),
        ("logs", _logs(draw)),
    ):
        found |= {f"{name}: {each}": host for each, host in made}
    return found


# Calls beside those that make containers, of a caller who is not trusted: the rule that refuses each.
CALLS: dict[tuple[str, str], str] = {
    ("POST", "/v1.41/build?t=x"): "strict-calls",
    ("POST", "/v1.41/build?version=2"): "strict-calls",
    ("POST", "/session"): "strict-calls",
    ("POST", "/grpc"): "strict-calls",
    ("POST", "/v1.41/images/load"): "strict-calls",
    ("POST", "/v1.41/images/create?fromSrc=-&repo=x"): "strict-calls",
    ("POST", "/v1.41/images/x/push"): "strict-calls",
    ("POST", "/v1.41/swarm/leave"): "strict-calls",
    ("POST", "/v1.41/nodes/x/update"): "strict-calls",
    ("POST", "/v1.41/secrets/create"): "strict-calls",
    ("POST", "/v1.41/containers/c/checkpoints"): "strict-calls",
    ("POST", "/v1.41/containers/c/start?checkpoint=x&checkpoint-dir=/tmp"): "strict-calls",
    ("POST", "/v1.41/containers/c/rename?name=fade"): "strict-calls",
    ("DELETE", "/v1.41/containers/c/checkpoints/x"): "strict-calls",
    ("POST", "/v1.41/containers/prune"): "strict-calls",
    ("POST", "/v1.41/volumes/prune"): "strict-calls",
    ("POST", "/v1.41/images/x/tag?repo=y"): "strict-calls",
    ("GET", "/v1.41/system/df"): "strict-calls",
    ("GET", "/v1.41/containers/json?all=1&size=%20True"): "strict-calls",
    ("GET", "/v1.41/containers/c/json?size=0&size=yes"): "strict-calls",
    ("GET", "/v1.41/containers/c/changes"): "strict-calls",
    ("GET", "/v1.41/images/x/get"): "strict-calls",
    ("GET", "/v1.41/containers/c/archive?path=/tmp"): "strict-calls",
    ("PUT", "/v1.41/containers/c/archive?path=/tmp"): "strict-calls",
    ("GET", "/v1.41/images/get?names=x"): "strict-calls",
    ("GET", "/v1.41/swarm"): "strict-calls",
    ("GET", "/v1.41/configs"): "strict-calls",
    ("GET", "/debug/vars"): "strict-calls",
    ("GET", "/v1.41/something/of/tomorrow"): "strict-calls",
    ("HEAD", "/v1.41/containers/json"): "strict-calls",
    ("POST", "/v1.41/exec/e/start"): "strict-exec",
    ("POST", "/v1.41/something/of/tomorrow"): "strict-calls",
    ("PATCH", "/v1.41/containers/json"): "strict-calls",
    ("POST", "/v1.41/plugins/pull?remote=x"): "plugin-management",
    ("POST", "/v1.41/swarm/init"): "swarm-management",
}
OPEN_CALLS = (
    ("POST", "/v1.41/containers/c/stop"),
    ("POST", "/v1.41/containers/c/wait"),
    ("DELETE", "/v1.41/containers/c"),
    ("POST", "/v1.41/images/create?fromImage=localhost:1/x&tag=y"),
    ("DELETE", "/v1.41/images/x"),
    ("POST", "/v1.41/auth"),
    ("GET", "/v1.41/containers/c/json"),
    ("GET", "/v1.41/containers/json?size=0"),
)
