"""What programs do beside CUDA, and what is done to them: nothing is lost, nobody hangs, nobody ends by it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c
from daemon import Daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, SYSTEM_NOT_READY, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
Begin = Callable[..., "subprocess.Popen[str]"]
CONTEXT = 526 * MIB
CALLS = 5
"""The last of them asks for more than the limit."""
ONCE = [SUCCESS] * (CALLS - 1) + [OUT_OF_MEMORY]


@pytest.fixture(scope="module")
def circumstances(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_circumstances(tmp_path_factory.mktemp("circumstances"), MIB)


def compile_circumstances(folder: Path, large: int) -> Path:
    """With so many bytes of thread-local variables."""
    return compile_c(folder / "program", f"-DLARGE={large}", SOURCES / "standalone/circumstances.c", "-ldl")


@pytest.fixture
def begin(circumstances: Path) -> Begin:
    def begin(folder: Path, *words: object, program: Path = circumstances) -> "subprocess.Popen[str]":
        environment = {"LD_PRELOAD": str(folder / "libconvgpu.so"), "LD_LIBRARY_PATH": str(folder / "driver")}
        command, pipe = [program, *map(str, words)], subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    return begin


def finish(process: "subprocess.Popen[str]", line: str = "") -> tuple[list[list[int]], str]:
    """What a program that ended well printed, and what it said on stderr."""
    try:
        printed, said = process.communicate(line, timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    return [[int(word) for word in row.split()] for row in printed.splitlines()], said


def test_a_thread_is_cancelled_after_the_call_and_leaves_no_lock(daemon: Daemon, begin: Begin) -> None:
    """The first call that waits would end it: connecting, asking, saying why."""
    printed, said = finish(begin(daemon.container("a", memory="2g"), "cancelled", 3 * GIB))
    assert printed == [[code, 1] for code in ONCE] + [[code] for code in ONCE]
    assert said.startswith("convgpu: cuMemAlloc of 3GiB on device 0 rejected: it would exceed the limit")


def test_a_paused_thread_is_cancelled_when_it_has_its_answer(daemon: Daemon, begin: Begin, join: Join) -> None:
    holder = join(daemon.container("holder", memory="15g"))
    held = holder.call(f"alloc {14 * GIB}")
    assert held.code == SUCCESS
    process = begin(daemon.container("a", memory="4g"), "paused", 2 * GIB)
    wait_until(lambda: daemon.state("a")["state"] == "waiting", "it is paused")
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout is not None
    others = [process.stdout.readline() for _line in range(4)]
    assert others == ["0\n"] * 4
    assert daemon.state("a")["state"] == "waiting"
    assert holder.call(f"free {held.number}").code == SUCCESS
    assert finish(process) == ([[SUCCESS, 1]], "")


def test_a_refusal_that_nobody_reads_is_no_reason_to_end(daemon: Daemon, begin: Begin) -> None:
    """SIGPIPE would end a program that writes nothing to its stderr itself."""
    assert finish(begin(daemon.container("a", memory="2g"), "pipe", 3 * GIB)) == ([[code] for code in ONCE], "")


def test_a_program_that_goes_on_after_main(daemon: Daemon, begin: Begin) -> None:
    """The hook has no end of its own that could come too early."""
    assert finish(begin(daemon.container("a", memory="2g"), "exit")) == ([[SUCCESS]] * 4, "")


@pytest.mark.parametrize("large", range(244, 250))
def test_thread_local_variables_leave_the_hooks_threads_their_stacks(
    daemon: Daemon, begin: Begin, tmp_path: Path, large: int
) -> None:
    """The C library takes them out of the stack, which has 256 KiB without them."""
    program = compile_circumstances(tmp_path, large * 1024)
    assert finish(begin(daemon.container("a", memory="2g"), "exit", program=program)) == ([[SUCCESS]] * 4, "")


def test_no_descriptor_is_left(daemon: Daemon, begin: Begin) -> None:
    printed, said = finish(begin(daemon.container("a", memory="2g"), "files"))
    assert printed == [[SYSTEM_NOT_READY], [SUCCESS]]
    assert "scheduler.sock (too many open files): " in said


def test_a_filter_of_system_calls_allows_no_socket(daemon: Daemon, begin: Begin) -> None:
    printed, said = finish(begin(daemon.container("a", memory="2g"), "sockets"))
    assert printed == [[SYSTEM_NOT_READY]]
    assert "scheduler.sock (not permitted): " in said


def test_a_privileged_program_finds_its_own_scheduler_and_no_other(
    daemon: Daemon, circumstances: Path, tmp_path: Path
) -> None:
    """With setuid the linker obeys ld.so.preload alone, and the program no variable of the user who calls it."""
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    folder = daemon.container("a", memory="2g")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.preload").write_text(f"{folder}/libconvgpu.so {folder}/driver/libcuda.so.1\n")
    script = f"""
mount --bind {tmp_path}/etc /etc && mount -t tmpfs none /mnt && cp {circumstances} /mnt && chmod 4755 /mnt/program &&
exec setpriv --reuid 65534 --clear-groups env CONVGPU_SOCKET=/nobody/listens /mnt/program cancelled {3 * GIB}
"""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    printed, said = finish(process)
    assert printed[-CALLS:] == [[code] for code in ONCE]
    assert "it would exceed the limit" in said
