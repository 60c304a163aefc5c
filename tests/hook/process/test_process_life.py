"""Several processes of one container share its limit, however they are started, and end."""

import contextlib
import ctypes.util
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest
from compiled import SOURCES, compile_c
from daemon import Daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from rounds import rounds
from scripted_session import GIB, MIB

Join = Callable[..., Program]
Run = Callable[..., "subprocess.Popen[str]"]
CONTEXT = 526 * MIB


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    compile_c(folder / "life", SOURCES / "standalone/life.c", "-ldl")
    compile_c(folder / "churn", SOURCES / "standalone/churn.c", "-ldl")
    compile_c(folder / "forks", SOURCES / "standalone/forks.c", "-ldl")
    return folder


@pytest.fixture
def run(lives: Path, daemon: Daemon) -> Iterator[Run]:
    """Start a program in a container's place; at the end all of the container's processes are killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        folder: Path, name: str, *words: object, preload: str = "{}", **environment: str
    ) -> "subprocess.Popen[str]":
        settings = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": preload.format(folder / "libconvgpu.so"),
            "LD_LIBRARY_PATH": str(folder / "driver"),
        }
        pipe = subprocess.PIPE
        command = [str(lives / name), *map(str, words)]
        started.append(subprocess.Popen(command, env=settings | environment, stdin=pipe, stdout=pipe, text=True))
        return started[-1]

    yield begin
    for container in daemon.admin.request("containers")["containers"]:
        for session in container["sessions"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session["pid"], signal.SIGKILL)
    for process in started:
        process.kill()
        process.communicate()


def usages(daemon: Daemon, name: str = "a") -> list[int]:
    """What each process of the container uses of the first device, the least first."""
    return sorted(session["devices"][0]["usage"] for session in daemon.state(name)["sessions"])


@pytest.mark.parametrize("way", ["fork", "vfork", "spawn", "daemon"])
def test_a_child_shares_the_limit(daemon: Daemon, run: Run, way: str) -> None:
    folder = daemon.container("a", memory="4g")
    if way in ("vfork", "spawn"):
        run(folder, "life", f"hold={GIB}", way, f"hold={512 * MIB}")
        expected = [512 * MIB + CONTEXT, GIB + CONTEXT]
    else:  # the driver does not work in the child of a process that uses it
        run(folder, "life", way, f"hold={512 * MIB}")
        expected = [512 * MIB + CONTEXT]
    wait_until(lambda: usages(daemon) == expected, f"usage after {way}")
    for session in daemon.state("a")["sessions"]:
        os.kill(session["pid"], signal.SIGKILL)
    wait_until(lambda: daemon.state("a")["devices"][0]["usage"] == 0, "all is given back")


def test_a_child_that_ends_leaves_its_parents_memory(daemon: Daemon, run: Run) -> None:
    folder = daemon.container("a", memory="4g")
    parent = run(folder, "life", f"hold={GIB}", "spawn", f"hold={512 * MIB}")
    wait_until(lambda: len(usages(daemon)) == 2, "both hold memory")
    [child] = [session["pid"] for session in daemon.state("a")["sessions"] if session["pid"] != parent.pid]
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: usages(daemon) == [GIB + CONTEXT], "the child's memory is given back")
    parent.kill()
    wait_until(lambda: usages(daemon) == [], "the parent's too")


def test_exec_gives_back_what_the_program_before_held(daemon: Daemon, run: Run) -> None:
    folder = daemon.container("a", memory="4g")
    process = run(folder, "life", f"hold={3 * GIB}", "exec", f"hold={2 * GIB}")
    wait_until(
        lambda: usages(daemon) == [2 * GIB + CONTEXT], "the second program holds its memory, and nothing else is"
    )
    [session] = daemon.state("a")["sessions"]
    assert session["pid"] == process.pid


def held_by_nvml(daemon: Daemon) -> int:
    """What the driver says that processes hold of the first device."""
    script = (
        "import ctypes, sys, pynvml as n; ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL); n.nvmlInit()\n"
        "print(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used)"
    )
    library = daemon.directory / "driver/libnvidia-ml.so.1"
    python = [str(Path(os.sys.executable)), "-c", script, str(library)]
    return int(subprocess.check_output(python, text=True, env={"PYTHONPATH": str(Path(pynvml.__file__).parent)}))


def test_processes_and_threads_share_the_last_bytes_without_a_race(daemon: Daemon, run: Run, join: Join) -> None:
    """Three processes of four threads each want about twice the limit; the books agree afterwards."""
    folder = daemon.container("a", memory="3g")
    started = [run(folder, "churn", 4, rounds(3000, few=1000), seed) for seed in range(1, 4)]
    seen = []
    results = []
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        assert process.stdout is not None
        seen.append(held_by_nvml(daemon))
        results.append([int(word) for word in process.stdout.readline().split()])
    held, refused, wrong = (sum(column) for column in zip(*results, strict=True))
    assert wrong == 0
    assert refused > 0
    assert daemon.state("a")["devices"][0]["usage"] == held + 3 * CONTEXT == held_by_nvml(daemon)
    assert all(size <= 3 * GIB for size in seen)
    rest = 3 * GIB - held - 4 * CONTEXT
    if rest >= 0:
        last = join(folder)
        assert last.call(f"alloc {rest // (2 * MIB) * 2 * MIB}").code == SUCCESS
        assert last.call(f"alloc {2 * MIB}").code == OUT_OF_MEMORY


def test_forks_while_other_threads_are_in_the_hook(daemon: Daemon, run: Run) -> None:
    """No lock is left behind in a child, and no bytes in the book. Two processes, which take each other's headroom."""
    folder = daemon.container("a", memory="2g")
    started = [run(folder, "forks", 150) for _ in range(2)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "150 0\n"
    wait_until(lambda: usages(daemon) == [CONTEXT, CONTEXT], "the children's sessions have ended")


@pytest.mark.parametrize("order", ["{}:JEMALLOC", "JEMALLOC:{}"])
def test_beside_another_preloaded_library(daemon: Daemon, run: Run, order: str) -> None:
    jemalloc = ctypes.util.find_library("jemalloc")
    if jemalloc is None:
        pytest.skip("libjemalloc2 is not installed: scripts/test installs it")
    folder = daemon.container("a", memory="4g")
    process = run(folder, "life", f"hold={GIB}", preload=order.replace("JEMALLOC", jemalloc))
    wait_until(lambda: usages(daemon) == [GIB + CONTEXT], "it holds its memory")
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "libjemalloc" in mapped
    assert "libconvgpu" in mapped


def test_a_clean_environment_is_no_way_out(daemon: Daemon, lives: Path) -> None:
    """With ld.so.preload in /etc, as a container can have it, neither `env -i` nor `docker exec` evades the limit."""
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root")
    folder = daemon.container("a", memory="1g")
    etc = daemon.directory / "etc"
    etc.mkdir()
    (etc / "ld.so.preload").write_text(f"{folder}/libconvgpu.so\n")
    driver = f"LD_LIBRARY_PATH={folder}/driver"
    script = f"mount --bind {etc} /etc && exec env -i {driver} {lives}/life hold={2 * GIB}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    refusal, error = done.stderr.splitlines()
    assert refusal.startswith("convgpu: cuMemAlloc of 2GiB on device 0 rejected: it would exceed the limit")
    assert error == "alloc: error 2"
