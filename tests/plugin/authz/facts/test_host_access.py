"""What the kernel says of programs and of device nodes: real processes, and files in place of nodes."""

import os
import shutil
import stat
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from convgpu.authz.facts.host_access import HostAccess
from convgpu.authz.ports import HostProgram, Node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")
# The last process says that it runs, and waits.
SLEEP = ("sh", "-c", "echo; exec cat")
USER = 4242


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def last_child(pid: int) -> int:
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[-1])
    return pid


@contextmanager
def program(*command, **who):
    """A process that runs and what is said of it; of its last descendant."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, **who) as process:
        try:
            process.stdout.readline()
            pid = last_child(process.pid)
            yield HostAccess(lambda: None).program(pid, started(pid))
        finally:
            process.stdin.close()


AS_USER = {"user": USER, "group": USER, "extra_groups": [44, 4243]}
GROUPS = frozenset({USER, 44, 4243})


@needs_root
@pytest.mark.parametrize(
    ("command", "who", "found"),
    [
        ((), {}, HostProgram(0, frozenset({*os.getgroups(), os.getegid()}), is_privileged=True)),
        ((), AS_USER, HostProgram(USER, GROUPS)),
        # Root in a namespace of one's own is nobody here, whatever it mounts and however its processes are numbered.
        (("unshare", "--user", "--map-root-user", "--mount"), AS_USER, HostProgram(USER, GROUPS)),
        (("unshare", "--user", "--map-root-user", "--pid", "--fork"), AS_USER, HostProgram(USER, GROUPS)),
        (("setsid", "--fork", "--wait"), AS_USER, HostProgram(USER, GROUPS)),
        (
            ("setpriv", "--reuid=4242", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
            {},
            HostProgram(USER, frozenset({os.getegid()}), is_privileged=True),
        ),
        (
            ("unshare", "--pid", "--fork", "setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"),
            {},
            HostProgram(USER, frozenset({USER}), is_apart=True),
        ),
    ],
)
def test_who_runs_a_program(command, who, found):
    with program(*command, *SLEEP, **who) as seen:
        assert seen == found


@needs_root
def test_a_setuid_program_is_its_callers():
    cat = shutil.copy(shutil.which("cat"), "/var/tmp/convgpu-test-cat")
    try:
        Path(cat).chmod(0o4755)
        with program("sh", "-c", f"echo; exec {cat}", **AS_USER) as seen:
            assert seen == HostProgram(USER, GROUPS)
    finally:
        Path(cat).unlink()


def test_another_process_with_its_id_and_one_that_has_ended_are_nobody():
    own = os.getpid()
    assert HostAccess(lambda: None).program(own, started(own) + 1) is None
    with subprocess.Popen(["true"]) as process:
        began = started(process.pid)
    assert HostAccess(lambda: None).program(process.pid, began) is None


@pytest.fixture
def host(tmp_path):
    """A root folder with the nodes of two GPUs, of which the driver describes one."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nbroken\nalice:x:1000:1000::/:/bin/sh\n")
    for name, mode in (("nvidia0", 0o660), ("nvidia1", 0o666), ("nvidiactl", 0o600), ("nvidia-uvm", 0o666)):
        (tmp_path / "dev" / name).touch()
        (tmp_path / "dev" / name).chmod(mode)
    gpu = tmp_path / "gpus/0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t x\nGPU UUID: \t GPU-a\nDevice Minor: \t 1\n")
    return tmp_path


def node(owner, group, others, **named):
    return Node(os.geteuid(), os.getegid(), owner, group, others, **named)


def test_the_nodes_of_a_gpu_or_of_all_where_nobody_says_which(host):
    access = HostAccess(lambda: host, host / "gpus")
    control = node(6, 0, 0)
    assert access.nodes("GPU-a") == ([node(6, 6, 6)], control)
    assert access.nodes("GPU-") == ([node(6, 6, 0), node(6, 6, 6)], control)
    (host / "dev/nvidiactl").unlink()
    assert access.nodes("GPU-a") is None
    assert HostAccess(lambda: None).nodes("GPU-a") is None


def test_an_acl_counts_as_its_mask_leaves_it(host):
    path = host / "dev/nvidia1"
    entries = (
        (0x01, 6, -1),
        (0x02, 6, 1000),
        (0x02, 4, 1001),
        (0x04, 4, -1),
        (0x08, 7, 50),
        (0x10, 6, -1),
        (0x20, 0, -1),
    )
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", raw)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660  # as if the group had it
    [found], _ = HostAccess(lambda: host, host / "gpus").nodes("GPU-a")
    assert found == node(6, 4, 0, users={1000: 6, 1001: 4}, groups={50: 6})


def test_users_are_looked_up_on_the_host(host):
    access = HostAccess(lambda: host)
    assert [access.user_id(name) for name in ("alice", "bob", "")] == [1000, None, None]
    assert HostAccess(lambda: None).user_id("alice") is None
