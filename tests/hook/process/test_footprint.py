"""What the hook takes of a process, and that its cost does not grow with the number of live allocations."""

import os
import subprocess
from pathlib import Path

import pytest
from built import build_hook
from compiled import SOURCES, compile_c
from daemon import running_daemon

TIB = 1 << 40
MIB = 1 << 20


def measure(program: Path, folder: Path, hook: Path, size: int, count: int, *, hooked: bool) -> tuple[int, list[float]]:
    """Return the bytes that the process grew by, and nanoseconds of its batches."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder / "driver")}
    if hooked:
        environment |= {"LD_PRELOAD": str(hook), "CONVGPU_SOCKET": str(folder / "scheduler.sock")}
    command = [program, str(size), str(count)]
    before, after, *times = subprocess.check_output(command, env=environment, text=True, timeout=120).split()
    return int(after) - int(before), [float(time) for time in times]


@pytest.mark.parametrize(("size", "count"), [(512, 1_000_000), (2 * MIB, 100_000)])
def test_a_live_allocation_takes_at_most_64_bytes_of_the_process(tmp_path: Path, size: int, count: int) -> None:
    program = compile_c(tmp_path / "footprint", SOURCES / "standalone/footprint.c", "-ldl")
    hook = build_hook() / "libconvgpu.so"
    with running_daemon(tmp_path / "d", f"simulated:{4 * TIB}") as daemon:
        folder = daemon.container("a", memory=str(3 * TIB))
        plain, _times = measure(program, folder, hook, size, count, hooked=False)
        hooked, times = measure(program, folder, hook, size, count, hooked=True)
        none, _times = measure(program, folder, hook, size, 10, hooked=True)
        bare, _times = measure(program, folder, hook, size, 10, hooked=False)
    assert hooked - plain <= MIB + 64 * count
    assert none - bare <= MIB
    assert times[-1] < 20 * times[0]  # the last of a million costs what the first hundred thousand did
