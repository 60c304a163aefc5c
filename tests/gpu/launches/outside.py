"""Memory that the hook does not see (OpenCL, Vulkan, decoders of video, managed and imported memory past it): the audit
charges it, and `CONVGPU_OVERUSE=stop` ends its owner.

    tests/gpu/launches/run                       or, by itself, outside.py

Uses libOpenCL.so.1, or NVIDIA's own libnvidia-opencl.so.1 where no loader is; libvulkan.so.1, or likewise
libEGL_nvidia.so.0; and libnvcuvid.so.1. What is missing it says, and the exit status is 0. Takes 3 GiB by each with a
limit of 2 GiB. The exit status is 1 if it is not charged, or not ended.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from calls import ABSENT
from rows import DEVICES, FOLDER, GIB, environment, running_daemon

LIMIT = 2 * GIB
WAYS = {
    "OpenCL": "opencl.py",
    "Vulkan": "vulkan.py",
    "NVDEC": "nvdec.py",
    "managed memory": "managed.py",
    "imported memory": "imported.py",
}
APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def wait_for(what: Callable[[], bool], seconds: float) -> float:
    """Wait until it is so; return the seconds, or -1 if it did not become so."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        if what():
            return time.monotonic() - begin
        time.sleep(0.02)
    return -1.0


def attempt(way: str, overuse: str) -> tuple[str, bool]:
    """Let a program take memory in this way; return a line about it, and whether it is as it should be."""
    options = [f"--overuse={overuse}", "--overuse-after=2s"]
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d", DEVICES, *options) as daemon:
        folder = daemon.container("outside", memory=str(LIMIT))
        words, pipe = [*APART, sys.executable, str(FOLDER / WAYS[way]), str(3 * GIB)], subprocess.PIPE
        program = subprocess.Popen(words, env=environment(folder), stdin=pipe, stdout=pipe, text=True)
        assert program.stdin is not None
        assert program.stdout is not None
        said = program.stdout.readline().strip()
        if not said:
            program.wait(60)
            reason = f"there is no {way} for a GPU here" if program.returncode == ABSENT else "the program failed"
            return f"{way}: not tried, {reason}", program.returncode == ABSENT

        def seen() -> int:
            return int(daemon.state("outside")["devices"][0]["seen"] or 0)  # type: ignore[index] # None: not looked yet

        charged = wait_for(lambda: seen() > LIMIT, 10)
        held = seen()
        ended = wait_for(lambda: program.poll() is not None, 15 if overuse == "stop" else 4)
        freed = overuse != "stop" or wait_for(lambda: seen() == 0, 10) >= 0
        program.kill()
        program.wait(60)
        good = charged >= 0 and (ended >= 0) == (overuse == "stop") and freed
        sizes = f"took {held / GIB:.3f}  limit {LIMIT / GIB:.0f} GiB"
        end = f"ended {ended:.1f} s later" if ended >= 0 else "not ended"
        return f"{way} ({said}), CONVGPU_OVERUSE={overuse}: {sizes}  charged after {charged:.1f} s, {end}", good


def innocent() -> tuple[str, bool]:
    """Let a program import what its worker has, beside memory without an owner; say whether it has that once."""
    limit = 6 * GIB
    options, pipe = ["--overuse=stop", "--overuse-after=2s"], subprocess.PIPE
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d", DEVICES, *options) as daemon:
        folder = daemon.container("outside", memory=str(limit))
        program = [sys.executable, str(FOLDER / "imported.py")]
        plain = {name: value for name, value in environment(folder).items() if name != "LD_PRELOAD"}
        with (
            subprocess.Popen([*program, str(4 * GIB), "kept"], env=plain, stdin=pipe, stdout=pipe, text=True) as keeper,
            subprocess.Popen(
                [*APART, *program, str(3 * GIB), "lives"], env=environment(folder), stdin=pipe, stdout=pipe, text=True
            ) as importer,
        ):
            assert keeper.stdout is not None
            assert importer.stdout is not None
            if not keeper.stdout.readline() or not importer.stdout.readline():
                return "imported from a worker: not tried, there is none here", importer.wait(60) == ABSENT
            most = 0

            def over() -> bool:
                nonlocal most
                most = max(most, int(daemon.state("outside")["devices"][0]["seen"] or 0))  # type: ignore[index]
                return importer.poll() is not None

            ended = wait_for(over, 10)
            importer.kill()
            keeper.kill()
        line = f"imported from a worker, beside 4 GiB without an owner: {most / GIB:.3f}  limit {limit / GIB:.0f} GiB"
        return f"{line}, {'ended' if ended >= 0 else 'not ended'}", ended < 0 and 3 * GIB < most < limit


def main() -> int:
    """Return 1 if something is wrong."""
    wrong = 0
    for way in WAYS:
        for overuse in ("warn", "stop"):
            line, good = attempt(way, overuse)
            print(f"{'ok   ' if good else 'WRONG'}  {line}", flush=True)
            wrong |= not good
            if "not tried" in line:
                break
    line, good = innocent()
    print(f"{'ok   ' if good else 'WRONG'}  {line}", flush=True)
    return wrong | (not good)


if __name__ == "__main__":
    sys.exit(main())
