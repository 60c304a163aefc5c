"""The host on which Engines of the tests run: a network namespace away from it, and a comparison of its state.

`dockerd --bridge=none` deletes `docker0` wherever it runs, so no Engine of the tests may run in the host's network.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000  # sched.h; os.unshare exists from Python 3.12 on
_hosts_network: list[int] = []
"""A descriptor of the host's network namespace, once this process has left it."""

CGROUP2 = (
    *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
    'umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"',
    "-",
)
"""Stands before a command that shall find version 2 of cgroups alone, as on most hosts: in mounts of its own.

Controllers that version 1 has stay there, so nothing limits CPUs, disks or memory, and /proc/PID/cgroup shows all.
"""


def missing_cgroup2() -> str | None:
    """Return why an Engine on version 2 of cgroups says no more than any other here; None if it does."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return "all tests run on cgroup v2 here"
    done = subprocess.run([*CGROUP2, "true"], check=False, capture_output=True, text=True)
    return f"cgroup v2 cannot be mounted here: {done.stderr.strip()}" if done.returncode else None


# A line of text for each object of the host's Engine; `ls` of containers without their times.
ENGINE = {
    "images": ("image", "ls", "--all", "--digests", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"),
    "containers": ("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}"),
    "networks": ("network", "ls", "--no-trunc", "--format", "{{.ID}} {{.Name}} {{.Driver}}"),
    "volumes": ("volume", "ls", "--format", "{{.Driver}} {{.Name}}"),
    "plugins": ("plugin", "ls", "--no-trunc", "--format", "{{.ID}} {{.Name}} {{.Enabled}}"),
    "runtimes": (
        "info",
        "--format",
        "{{.DefaultRuntime}} {{json .Runtimes}} {{.Swarm.LocalNodeState}} {{json .Plugins}}",
    ),
}
NETWORK = {
    "routes": ("ip", "route", "show", "table", "all"),
    "iptables": ("iptables-save",),
    "ip6tables": ("ip6tables-save",),
    "forwarding": ("cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"),
}


def leave_hosts_network() -> None:
    """Move this thread, and what it starts, into a new network namespace that has loopback only; needs root."""
    if _hosts_network:
        return
    descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _hosts_network.append(descriptor)


def has_left_hosts_network() -> bool:
    return bool(_hosts_network)


def _run_in_hosts_network(*command: str) -> list[str]:
    """Return the lines that a command prints; none if it fails, as where nothing is installed or no Engine runs."""
    descriptors = tuple(_hosts_network)
    enter = [f"--net=/proc/self/fd/{descriptor}" for descriptor in descriptors]
    prefix = ["nsenter", *enter] if enter else []
    done = subprocess.run([*prefix, *command], check=False, capture_output=True, text=True, pass_fds=descriptors)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _without_counters(line: str) -> str:
    """Return a line of iptables-save without what counts packets or time."""
    return "" if line.startswith("#") else re.sub(r"\[\d+:\d+\]", "", line)


def _interfaces() -> list[str]:
    found = []
    for link in json.loads("".join(_run_in_hosts_network("ip", "-j", "address")) or "[]"):
        addresses = (f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"])
        found.append(" ".join([link["ifname"], link.get("operstate", ""), *addresses]))
    return found


def host_state() -> dict[str, list[str]]:
    """Return the host's network and what its own Engine has, in lines that can be compared."""
    state = {name: sorted(_run_in_hosts_network("docker", *words)) for name, words in ENGINE.items()}
    for name, command in NETWORK.items():
        if shutil.which(command[0]):
            state[name] = [line for line in map(_without_counters, _run_in_hosts_network(*command)) if line]
    state["interfaces"] = _interfaces()
    settings = Path("/etc/docker/daemon.json")
    state["daemon.json"] = [settings.read_text()] if settings.exists() else []
    return state
