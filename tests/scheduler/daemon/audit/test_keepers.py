"""Who may keep memory with which the driver lists nobody; with real processes and mounts."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core.audit.attribution import Kept, Owner
from convgpu.daemon.audit import keepers
from convgpu.daemon.audit.keepers import Keepers
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.system.open_files import identify
from convgpu.daemon.system.procfs import with_descendants
from convgpu.protocol import records

MIB = 1 << 20
INDEX = cast("Any", SimpleNamespace(volume_of=lambda _: None, container_of=lambda _: None))
WAITS = "import ctypes, sys; assert ctypes.CDLL(None).unshare(int(sys.argv[1])) == 0; print(flush=True); input()"
OTHER_MOUNTS = "0x20000"  # CLONE_NEWNS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace needs root")


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of this process are not ours."""
    monkeypatch.setattr(keepers, "with_descendants", lambda pid: {pid})


@contextmanager
def keeper(node: Path, *, is_sent: bool) -> Iterator[int]:
    """A process that has a file open, which others opened if it was sent it."""
    with node.open() as opened:
        mounts = str(int(OTHER_MOUNTS, 16) if is_sent else 0)
        command, pipe = [sys.executable, "-c", WAITS, mounts], subprocess.PIPE
        with subprocess.Popen(command, pass_fds=[opened.fileno()], stdin=pipe, stdout=pipe) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
            process.communicate(b"\n")


async def walk(found: Keepers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at all descriptors of this machine."""
    monkeypatch.setattr(keepers, "_MOST_AT_ONCE", 1 << 30)
    found.look(INDEX)
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


def rows_of(
    node: Path, size: int, monkeypatch: pytest.MonkeyPatch, left: tuple[Kept, ...] = ()
) -> tuple[records.Unlimited, ...]:
    async def look() -> tuple[records.Unlimited, ...]:
        identity, report = identify(str(node)), AuditReport()
        assert identity is not None
        found = Keepers(lambda: [identity], report)
        found.see_unlisted("gpu", size)
        found.see("gpu", left)
        await walk(found, monkeypatch)
        found.see("gpu", left)
        return report.left["gpu"]

    return asyncio.run(look())


@pytest.mark.usefixtures("strangers")
def test_who_was_sent_a_descriptor_is_named_where_memory_is_in_use_that_nobody_is_listed_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = tmp_path / "nvidia-uvm"
    node.touch()
    with keeper(node, is_sent=True) as pid:
        comm = Path(f"/proc/{pid}/comm").read_text().strip()
        rows = rows_of(node, 100 * MIB, monkeypatch)
    who = f"was sent one: {pid} '{comm}' on the host"
    assert rows == (records.Unlimited("a program that the driver does not list", "", 100 * MIB, 0, who),)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("104857600 bytes of gpu are in use, and the driver lists no program with them.")
    assert f"may keep them: {who}. Restart" in warning


@pytest.mark.usefixtures("strangers")
def test_little_memory_or_descriptors_that_were_opened_there_blame_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every program that uses a GPU has one, and the driver takes some memory for itself."""
    node = tmp_path / "nvidia-uvm"
    node.touch()
    with keeper(node, is_sent=True):
        rows = [rows_of(node, 64 * MIB, monkeypatch)]
    with keeper(node, is_sent=False):
        rows.append(rows_of(node, 100 * MIB, monkeypatch))
    assert (rows, caplog.records) == ([(), ()], [])


@pytest.mark.usefixtures("strangers")
def test_both_kinds_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "nvidia-uvm"
    node.touch()
    dead = Kept(4_000_000, 200 * MIB, Owner(volume="a"), is_left=True)
    with keeper(node, is_sent=True):
        rows = rows_of(node, 100 * MIB, monkeypatch, (dead,))
    assert [(row.name, row.size) for row in rows] == [
        ("a", 200 * MIB),
        ("a program that the driver does not list", 100 * MIB),
    ]


def test_our_own_programs_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks the driver within a container's namespace has a descriptor of it that was opened elsewhere."""
    node = tmp_path / "nvidia-uvm"
    node.touch()
    with keeper(node, is_sent=True):
        assert rows_of(node, 100 * MIB, monkeypatch) == ()


def test_children_of_children_are_descendants() -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        assert {os.getpid(), shell.pid, child} <= with_descendants(os.getpid())
        assert with_descendants(shell.pid) == {shell.pid, child}
        assert with_descendants(child) == {child}
        os.kill(child, 9)
