"""A program frees its memory when it sees that it is asked about within its PID namespace, and takes it again: what is
it told to have, if who asks comes for each question, and if it stays? Needs root and a card (decision 199).

    python3 tests/gpu/bare/fleeing.py [MIB...]
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pynvml

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scheduler"))
os.environ["PYTHONPATH"] = f"{ROOT / 'scheduler'}:{os.environ.get('PYTHONPATH', '')}"  # of the program that asks

from convgpu.daemon.gpu.namespace_lists import NamespaceAsker, NamespaceQuestion  # noqa: E402

ROUNDS = 40
# Has memory whenever nobody else is here, or whoever is here sleeps, as far as /proc tells.
PROGRAM = r"""
#include <cuda.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int stat_of = -1;
static bool is_here(bool opens) {
    DIR *folder = opendir("/proc");
    bool found = false;
    for (struct dirent *row; (row = readdir(folder));) {
        if (atoi(row->d_name) <= 1) continue;
        found = true;
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/stat", atoi(row->d_name));
        if (opens) stat_of = open(name, O_RDONLY);
    }
    closedir(folder);
    return found;
}
static bool is_asked(bool stays) {
    if (!stays) return is_here(false);
    char text[256] = "";
    if (stat_of < 0 && !is_here(true)) return false;
    if (stat_of >= 0 && pread(stat_of, text, sizeof text - 1, 0) > 0) return strrchr(text, ')')[2] != 'S';
    close(stat_of);
    stat_of = -1;
    return true;
}
int main(int count, char **words) {
    CUcontext context;
    CUdeviceptr memory;
    size_t size = (size_t)atol(words[1]) << 20;
    bool stays = count > 2;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuMemAlloc(&memory, size)) return 2;
    puts("taken");
    fflush(stdout);
    for (;;) {
        if (!is_asked(stays)) continue;
        if (cuMemFree(memory)) return 3;
        while (is_asked(stays)) {}
        usleep(3000);
        if (cuMemAlloc(&memory, size)) return 4;
    }
}
"""


def ask(asker: NamespaceAsker, first: int, *, stays: bool) -> tuple[int, float]:
    """Return what the program is told to have, in bytes, and the seconds that this took."""
    descriptor, since = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY), time.monotonic()
    [answer] = asker.ask([NamespaceQuestion(descriptor, [1], [first])])
    if answer.has_come:
        [answer] = asker.ask([NamespaceQuestion(descriptor, [1], [first])])
    took = time.monotonic() - since
    os.close(descriptor)
    if not stays:
        asker.close()
    if answer.most is None:
        sys.exit(f"nobody told: {answer}")
    return max((size for rows in answer.most.values() for size in rows.values()), default=0), took


def compile_program(folder: Path) -> Path:
    """Return the program; nvcc lies beside the toolkit's headers."""
    (folder / "fleeing.c").write_text(PROGRAM)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    words = ["-O2", "-o", folder / "fleeing", folder / "fleeing.c", "-lcuda", "-L/usr/local/cuda/lib64/stubs"]
    subprocess.run([nvcc, *words], check=True)
    return folder / "fleeing"


def look(program: Path, size: int, *, stays: bool) -> None:
    """Print how often all of the memory was seen."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program, str(size)]
    with subprocess.Popen([*command, *(["stays"] if stays else [])], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "taken\n"
        first = int(Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text())
        asker = NamespaceAsker("libnvidia-ml.so.1")
        told = []
        try:
            for _ in range(ROUNDS):
                told.append(ask(asker, first, stays=stays))
                time.sleep(0.1)
        finally:
            asker.close()
            os.kill(first, signal.SIGKILL)
    seen = sum(one >= size << 20 for one, _ in told[1:])
    took = statistics.median(seconds for _, seconds in told[1:])
    print(f"who asks {'stays' if stays else 'comes'}: {size} MiB seen {seen} times of {ROUNDS - 1}, {took:.3f} s each")


def main() -> None:
    """Look at a program of each size, in MiB, while who asks comes each time, and while it stays."""
    pynvml.nvmlInit()
    print(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)), pynvml.nvmlSystemGetDriverVersion())
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder))
        for size in sys.argv[1:] or ["4096"]:
            for stays in (False, True):
                look(program, int(size), stays=stays)


if __name__ == "__main__":
    main()
