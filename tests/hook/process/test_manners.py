"""The manners of a guest: nothing before the first CUDA call, little after it, and nothing of the program's changed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon import wait_until
from hooked_program import SUCCESS, SYSTEM_NOT_READY, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, open_session, row

from convgpu.protocol.messages import Accepted, Allocate
from convgpu.protocol.wire import PageFlag

Start = Callable[..., Program]


OUTLINE = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
dirty = 0
for line in open("/proc/self/smaps"):
    if "-" in line.split()[0] and ":" not in line.split()[0]:
        ours = "libconvgpu" in line
    elif ours and line.startswith(("Private_Dirty:", "Anonymous:")):
        dirty += int(line.split()[1])
print(json.dumps({"threads": int(status["Threads"]), "files": len(os.listdir("/proc/self/fd")), "dirty": dirty,
                  "signals": [status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")],
                  "umask": status["Umask"].strip(), "environment": sorted(set(os.environ) - {"LD_PRELOAD"})}))
"""


def test_a_program_without_cuda_is_left_alone(hook: Path, tmp_path: Path) -> None:
    """No thread, no file, no memory of ours but what the linker writes into the library when it loads it."""
    seen = []
    for preload in ("", str(hook / "libconvgpu.so")):
        environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload, "CONVGPU_DEBUG": "1"}
        command = [sys.executable, "-c", OUTLINE]
        finished = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert finished.stderr == ""
        seen.append(json.loads(finished.stdout))
    without, with_hook = seen
    assert without.pop("dirty") == 0
    assert with_hook.pop("dirty") <= 64  # KiB, each page counted twice
    assert with_hook == without
    assert with_hook["threads"] == 1


def test_nothing_happens_before_the_first_call(start: Start, scheduler: ScriptedScheduler) -> None:
    program = start()
    assert program.call("where").code == SUCCESS
    assert (program.threads(), program.sockets()) == (["program", "program"], 0)
    assert not scheduler.has_caller()


def test_one_connection_and_one_thread(start: Start, scheduler: ScriptedScheduler) -> None:
    session = open_session(start(), scheduler, headroom=GIB)
    assert session.program.call("init 0").code == SUCCESS
    assert session.program.call("alloc 4096").code == SUCCESS
    assert session.program.threads() == ["convgpu", "program", "program"]
    assert session.program.sockets() == 1
    assert session.program.end() == []
    assert session.peer.at_end()


def test_without_a_scheduler_cuda_does_not_start(start: Start, tmp_path: Path) -> None:
    program = start()
    for command in ("init 0", "init 0", "retain 0"):
        assert program.call(command).code == SYSTEM_NOT_READY
    assert program.threads() == ["program", "program"]
    lines = program.end()
    assert len(lines) == 1
    assert lines[0].startswith(f"convgpu: no scheduler at {tmp_path}/scheduler.sock (no such socket): start this")


def test_a_scheduler_that_stays_away_is_waited_for_once_and_not_for_ever(
    start: Start, scheduler: ScriptedScheduler
) -> None:
    scheduler.die()
    program, begun = start(), time.monotonic()
    assert program.call("init 0").code == SYSTEM_NOT_READY
    waited = time.monotonic() - begun
    for command in ("init 0", "retain 0"):
        assert program.call(command).code == SYSTEM_NOT_READY
    assert time.monotonic() - begun - waited < waited
    assert waited > 4
    [line] = program.end()
    assert line.startswith(f"convgpu: no scheduler at {scheduler.path} (nobody listens): start this")


def test_a_scheduler_that_says_nothing_is_given_up(start: Start, scheduler: ScriptedScheduler) -> None:
    """After 10 s, also in a program to which signals come all the time."""
    program = start()

    def is_given_up() -> bool:
        assert program.call("kick 0", thread=1).code == SUCCESS
        return program.returned()

    program.begin("init 0")
    scheduler.accept()
    wait_until(is_given_up, "the call ends", seconds=60)
    assert program.result().code == SYSTEM_NOT_READY
    [line] = program.end()
    assert f"no scheduler at {scheduler.path} (no answer in time): " in line


@pytest.mark.parametrize("flags", [0, PageFlag.ELASTIC])
def test_without_a_thread_no_connection_is_left(
    start: Start, scheduler: ScriptedScheduler, programs: Path, flags: int
) -> None:
    """A thread of its own receives, and another one moves memory: CUDA begins with both of them or not at all."""
    program = start(preload=(programs / "libthreadless.so",))
    for _turn in range(2):
        program.begin("init 0")
        peer, _hello = scheduler.accept()
        peer.welcome((row(),), flags)
        assert program.result().code == SYSTEM_NOT_READY
        assert program.sockets() == 0
        assert peer.at_end()
    assert "convgpu-page" not in Path(f"/proc/{program.pid}/maps").read_text()
    [line] = program.end()
    assert f"no scheduler at {scheduler.path} (no thread could be started): allow this container more " in line


def test_a_program_that_allows_itself_no_file(start: Start, scheduler: ScriptedScheduler) -> None:
    """Its connection serves it as before, and its end is found within 2 s."""
    session = open_session(start(), scheduler)
    program = session.program
    links = {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{program.pid}/fd").iterdir()}
    [descriptor] = [name for name, link in links.items() if link.startswith("socket:")]
    assert program.call("nofiles").code == SUCCESS
    for _turn in range(3):
        program.begin(f"alloc {2 * MIB}")
        request, message = session.peer.receive()
        assert message == Allocate(0, 2 * MIB, "cuMemAlloc")
        session.peer.send(Accepted(2 * MIB, 0), request)
        assert program.result().code == SUCCESS
    assert session.peer.silent()
    assert program.call(f"closefd {descriptor}").code == SUCCESS
    assert session.peer.at_end()


def test_manners(start: Start, scheduler: ScriptedScheduler) -> None:
    before = start(LD_PRELOAD="")
    assert before.call("init 0").code == SUCCESS
    session = open_session(start(), scheduler, headroom=GIB)

    def traits(program: Program) -> list[str]:
        status = Path(f"/proc/{program.pid}/status").read_text().splitlines()
        return [line for line in status if line.split(":")[0] in {"Umask", "SigBlk", "SigIgn", "SigCgt"}]

    assert traits(session.program) == traits(before)
