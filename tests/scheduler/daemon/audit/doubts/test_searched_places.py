"""Which PID namespaces are searched for memory of dead processes, and for which pids; on real namespaces."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from contained_program import first_process
from daemon import wait_until

from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.doubts import places
from convgpu.daemon.gpu.namespace_lists import NO_IDS
from convgpu.daemon.system.procfs import is_alive

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")

INDEX = ProcessIndex({}, {"id": "a", "other": "b"}, {})
Look = Callable[[Mapping[int, str | None]], dict[Owner, set[int]]]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look at processes that are in containers as said; return the pids that live in each one's namespace."""

    def find(rows: Mapping[int, str | None]) -> dict[Owner, set[int]]:
        monkeypatch.setattr(places, "processes", lambda: list(rows))
        monkeypatch.setattr(places, "containers_of", lambda pid: [rows[pid]] if rows[pid] else [])
        found = places.find_namespaces(INDEX, 1)
        for one in found.values():
            os.close(one.descriptor)
        return {one.owner: one.living for one in found.values()}

    return find


@contextmanager
def joined(first: int, *command: str) -> Iterator[int]:
    """A process that entered the namespace of another one."""
    command = "nsenter", "--target", str(first), "--pid", *(command or ("sleep", "60"))
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command))
        stack.callback(process.kill)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(children.read_text, "it has begun")
        child = int(children.read_text())
        stack.callback(os.kill, child, 9)
        wait_until(lambda: Path(f"/proc/{child}/comm").read_text() != "nsenter\n", "it is what it shall be")
        yield child


# Another container with a limit, one without, and the host.
@pytest.mark.parametrize("other", ["other", "stranger", None])
def test_a_namespace_that_others_share_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, look: Look, other: str | None
) -> None:
    with first_process() as first, joined(first) as inner, first_process() as apart:
        rows = {first: "id", inner: other, apart: "stranger"}
        monkeypatch.setattr(places, "_PASSING", 60.0)
        if other is None:  # a runtime's, on its way
            assert look(rows) == {Owner("a", "id"): {1}}
        monkeypatch.setattr(places, "_PASSING", -1.0)
        assert look(rows) == {}
        assert look({first: "id", apart: "other"}) == {Owner("a", "id"): {1}, Owner("b", "other"): {1}}


def test_who_has_ended_does_not_share_it(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    """Under cgroup v1 it has no cgroup any more: a container would keep us out by a zombie."""
    monkeypatch.setattr(places, "_PASSING", -1.0)
    source = "import os, signal\nif os.fork() == 0:\n    os._exit(0)\nsignal.pause()"
    with first_process() as first, joined(first, sys.executable, "-c", source) as inner:
        children = Path(f"/proc/{inner}/task/{inner}/children")
        wait_until(lambda: children.read_text() and not is_alive(int(children.read_text())), "it has ended")
        ended = int(children.read_text())
        assert look({first: "id", inner: "id", ended: None}) == {Owner("a", "id"): {1, 2}}
        # What it has, others keep: it is not of the living, whether or not its parent waits for it.
        assert look({first: "id", inner: "id", ended: "id"}) == {Owner("a", "id"): {1, 2}}


def test_a_first_process_that_keeps_the_kernel_from_telling_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    open_one, tell_one = places.open_pid_namespace, places.pid_namespace
    with first_process() as first, joined(first) as inner:
        monkeypatch.setattr(places, "open_pid_namespace", lambda pid: None if pid == first else open_one(pid))
        assert look({first: "id", inner: "id"}) == {Owner("a", "id"): {1, 2}}
        monkeypatch.setattr(places, "pid_namespace", lambda pid: None if pid == first else tell_one(pid))
        with joined(first) as other:
            assert look({first: "stranger", inner: "stranger", other: "id"}) == {}


def test_who_asks_does_not_share_it(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setattr(places, "_PASSING", -1.0)
    command = "setpriv", "--reuid", str(NO_IDS[0]), "--clear-groups", "sleep", "60"
    with first_process() as first, joined(first, *command) as inner:
        wait_until(lambda: Path(f"/proc/{inner}/comm").read_text() == "sleep\n", "it is nobody")
        assert look({first: "id", inner: None}) == {Owner("a", "id"): {1}}


def test_no_descriptor_is_left_where_a_look_fails(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    opened, open_one = list[int](), places.open_pid_namespace

    def fail(pid: int) -> int | None:
        if opened:
            raise RuntimeError("can't start new thread")
        opened.append(pid)
        return open_one(pid)

    monkeypatch.setattr(places, "open_pid_namespace", fail)
    with first_process() as one, first_process() as other:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with pytest.raises(RuntimeError):
            look({one: "id", other: "other"})
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_all_pids_are_searched_that_a_namespace_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Linux 6.14 it has a bound of its own, whatever the host's is."""
    read = Path.read_text
    for forks, most in ((1000, 5096), (24_000_000, 1 << 22)):
        rows = {"/proc/stat": f"cpu 1\nprocesses {forks}\n", "/proc/sys/kernel/pid_max": "32768\n"}
        monkeypatch.setattr(Path, "read_text", lambda path, rows=rows: rows.get(str(path)) or read(path))
        assert places.most_pids() == most


def test_who_exits_is_neither_alive_nor_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import os, signal\nif os.fork() == 0:\n    os._exit(0)\nsignal.pause()"
    with first_process() as first, joined(first, sys.executable, "-c", source) as inner:
        children = Path(f"/proc/{inner}/task/{inner}/children")
        wait_until(lambda: children.read_text() and not is_alive(int(children.read_text())), "it has ended")
        rows = [first, inner, int(children.read_text())]
        monkeypatch.setattr(places, "processes", lambda: rows)
        monkeypatch.setattr(places, "containers_of", lambda _: ["id"])
        assert places.unended_in(INDEX) == {"id": places.Unended({1, 2}, set())}
        monkeypatch.setattr(places, "is_alive", lambda pid: pid != inner)
        monkeypatch.setattr(places, "is_exiting", lambda pid: pid == inner)
        assert places.unended_in(INDEX) == {"id": places.Unended({1, 3}, {2})}
