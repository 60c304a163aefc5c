"""Who joins a container's namespaces gets that container's, and starts at the same time get IDs of their own."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import strict_site
from docker_engine import wait_for
from raw_engine import Call
from strict_run import API, PROGRAM, body, logs, run_in

pytestmark = pytest.mark.engine

STARTS = int(os.environ.get("CONVGPU_STARTS", "6"))
# In place of the runtime: before a container is created, what stands in a file is done.
WRAPPER = """#!/bin/sh
case " $* " in *" create "*) [ ! -e {file} ] || {python} -I {file} >/dev/null 2>&1 </dev/null ;; esac
exec {program} "$@"
"""
# Ends a process, and gives its number to one of a user's, in a user namespace of its own.
TAKER = """
import ctypes, os, signal, sys, time
pid = {pid}
os.unlink(__file__)
os.kill(pid, signal.SIGKILL)
while os.path.exists(f"/proc/{{pid}}"):
    time.sleep(0.01)
for _ in range(1000):
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(pid - 1))
    child = os.fork()
    if child == 0:
        if os.getpid() != pid:
            os._exit(0)
        os.setsid(), os.setgroups([]), os.setresgid(54321, 54321, 54321), os.setresuid(54321, 54321, 54321)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
        ctypes.CDLL(None).unshare(0x10000000 | 0x08000000)
        for name, text in ("setgroups", "deny"), ("uid_map", "0 54321 1"), ("gid_map", "0 54321 1"):
            open(f"/proc/self/{{name}}", "w").write(text)
        os.execv("/bin/sleep", ["sleep", "600"])
    if child == pid:
        while open(f"/proc/{{pid}}/comm").read() != "sleep\\n":
            time.sleep(0.01)
        break
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def between(site):
    """A file: what stands in it is done between the Engine's text of what is to start, and the runtime."""
    rules = site.directory / "etc/convgpu/rules.toml"
    joins = ", ".join(f'"{name}=container"' for name in ("ipc", "network", "pid"))
    rules.write_text(strict_site.RULES.replace('"network=host"', f'"network=host", {joins}'))
    file, wrapper = site.directory / "between.py", site.directory / "wrapper"
    wrapper.write_text(WRAPPER.format(file=file, python=sys.executable, program=PROGRAM))
    wrapper.chmod(0o755)
    words = [f"--convgpu-directory={site.directory_of('convgpu')}", f"--convgpu-rules={rules}"]
    site.configure({"runtimes": {"convgpu": {"path": str(wrapper), "runtimeArgs": words}}})
    yield file
    site.configure({"runtimes": {"convgpu": {"path": PROGRAM, "runtimeArgs": words}}})
    rules.write_text(strict_site.RULES)


@pytest.fixture
def started(raw):
    """Return a function that starts a container, and returns its ID and the answer."""
    made = []

    def start(host):
        asked = body(host, "sh", "-c", "cat /proc/self/uid_map; readlink /proc/self/ns/ipc; exec sleep 600")
        made.append(raw.post(f"{API}/containers/create", asked).json["Id"])
        return made[-1], raw.post(f"{API}/containers/{made[-1]}/start")

    yield start
    for each in made:
        raw.remove(each)


def pid_of(raw, container):
    return raw.send(Call("GET", f"{API}/containers/{container}/json")).json["State"]["Pid"]


@pytest.mark.parametrize(
    "more",
    [{}, {"NetworkMode": "container:{}", "PidMode": "container:{}"}, {"NetworkMode": "host"}],
    ids=["ipc", "all", "host's"],
)
def test_who_joins_a_container_has_its_ids_and_namespaces(raw, between, started, more):  # noqa: ARG001 - its rules
    theirs, answer = started({"IpcMode": "shareable"})
    assert answer.status == 204, answer
    host = {"IpcMode": f"container:{theirs}"} | {name: mode.format(theirs) for name, mode in more.items()}
    own, answer = started(host)
    assert answer.status == 204, answer
    wait_for("both run", lambda: all("ipc" in logs(raw, each) for each in (theirs, own)))
    assert logs(raw, own) == logs(raw, theirs)
    assert run_in(raw, own, "cat /proc/self/uid_map; readlink /proc/self/ns/ipc") == logs(raw, theirs)
    descriptors = Path(f"/proc/{pid_of(raw, own)}/fd")
    assert sorted(each.name for each in descriptors.iterdir()) == ["0", "1", "2"]


def test_nobody_is_joined_who_has_the_number_of_a_container_since(raw, between, started):
    """A user's process with the container's number, between the Engine's text and the runtime."""
    theirs, _ = started({"IpcMode": "shareable"})
    pid = pid_of(raw, theirs)
    between.write_text(TAKER.format(pid=pid))
    own, answer = started({"IpcMode": f"container:{theirs}", "NetworkMode": "host", "Tmpfs": {"/dev/pts": "size=1m"}})
    try:
        assert Path(f"/proc/{pid}/uid_map").read_text().split() == ["0", "54321", "1"]
        assert (answer.status, b"strict-namespaces" in answer.raw) == (500, True), (answer, logs(raw, own))
    finally:
        subprocess.run(["kill", str(pid)], check=True)


def test_containers_that_start_at_the_same_time_have_ids_of_their_own(raw, between, started):  # noqa: ARG001 - its rules
    """`CONVGPU_STARTS` for more of them."""
    count = 2 * STARTS
    with ThreadPoolExecutor(count) as pool:
        made = [each for each, _ in pool.map(started, [{}] * count)]
    firsts = {Path(f"/proc/{pid_of(raw, each)}/uid_map").read_text().split()[1] for each in made}
    assert len(firsts) == count
