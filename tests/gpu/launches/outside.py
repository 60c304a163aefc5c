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
    return wrong


if __name__ == "__main__":
    sys.exit(main())
