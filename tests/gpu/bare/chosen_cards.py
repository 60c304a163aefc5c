"""Chosen cards on a real driver: what CUDA, NVML, nvidia-smi and frameworks show when a scheduler chose some of them.

    make -C hook && python3 tests/gpu/bare/chosen_cards.py

Needs two cards and an NVIDIA driver; no Engine, no root, and of Python's packages only nvidia-ml-py. PyTorch, CuPy and
JAX are tried where they are. The scheduler is a small one that grants everything: it is the hook that is tried.
Prints a line for each question; the exit status is 1 if an answer is wrong.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "scheduler"))
sys.path.insert(0, str(Path(__file__).parents[2] / "hook"))

import pynvml
from choosing_scheduler import GIB, ChoosingScheduler
from scripted_scheduler import ScriptedScheduler

HOOK = Path(__file__).parents[3] / "hook/build/libconvgpu.so"

DRIVER = """
import ctypes, json, uuid
import pynvml as n
def by_nvml():
    n.nvmlInit()
    return [n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(row)) for row in range(n.nvmlDeviceGetCount())]
def by_cuda():
    cuda, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    result = cuda.cuInit(0)
    if result:
        return result
    cuda.cuDeviceGetCount(ctypes.byref(count))
    seen = []
    for ordinal in range(count.value):
        cuda.cuDeviceGetUuid_v2(name, ordinal)
        seen.append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    return seen
"""
TORCH = """
import json, torch
before = torch.cuda.device_count()
named = [f"GPU-{torch.cuda.get_device_properties(row).uuid}" for row in range(before)]
sums = [int(torch.ones(1 << 20, device=f"cuda:{row}").sum().item()) for row in range(before)]
assert (torch.cuda.device_count(), sums) == (before, [1 << 20] * before)
print(json.dumps(named))
"""
CUPY = """
import json, uuid, cupy
runtime = cupy.cuda.runtime
every = [runtime.getDeviceProperties(row) for row in range(runtime.getDeviceCount())]
print(json.dumps([f"GPU-{uuid.UUID(bytes=bytes(one['uuid'])[:16])}" for one in every]))
"""
JAX = "import json, jax; print(json.dumps(len(jax.devices('gpu'))))"
CHILD = "import os, subprocess, json; by_cuda(); print(json.dumps([subprocess.check_output(['env']).decode().count("
CHILD += "'CUDA_VISIBLE_DEVICES='), by_nvml()]))"


class Trial:
    """Runs programs under the hook, and compares what they print."""

    def __init__(self, socket: Path) -> None:
        self.wrong = 0
        self._settings = os.environ | {"LD_PRELOAD": str(HOOK), "CONVGPU_SOCKET": str(socket)}
        self._settings.pop("CUDA_VISIBLE_DEVICES", None)

    def compare(self, what: str, expected: object, command: list[str], visible: str | None = None) -> None:
        """Run a program; its last line is JSON, or its whole output the list of nvidia-smi."""
        settings = self._settings | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        begin = time.monotonic()
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
        took = time.monotonic() - begin
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            answer = [line.split("UUID: ")[1].rstrip(")") for line in done.stdout.splitlines() if "UUID: GPU" in line]
        good = answer == expected and done.returncode == 0
        self.wrong += not good
        print(f"{'ok   ' if good else 'WRONG'}  {what}  ({took:.1f} s)", flush=True)
        if not good or done.stderr:
            print(f"       {answer}\n{done.stderr[-1500:]}", flush=True)

    def python(self, what: str, expected: object, program: str, visible: str | None = None) -> None:
        """Run a Python program."""
        self.compare(what, expected, [sys.executable, "-c", program], visible)


def try_choice(trial: Trial, chosen: list[str], scheduler: ChoosingScheduler) -> None:
    """Ask everybody what there is."""
    in_order = [uuid for uuid in sorted_by_driver() if uuid in chosen]
    label = f"{len(chosen)} chosen"
    trial.python(f"{label}: CUDA", chosen, DRIVER + "print(json.dumps(by_cuda()))")
    print(f"       HELLO named {len(scheduler.hellos[-1].held)} cards", flush=True)
    trial.python(f"{label}: NVML without a session", in_order, DRIVER + "print(json.dumps(by_nvml()))")
    both = "before = len(by_nvml()); by_cuda(); print(json.dumps([before, by_nvml()]))"
    trial.python(f"{label}: NVML, CUDA, NVML", [len(chosen), chosen], DRIVER + both)
    trial.python(f"{label}: a child's environment", [0, chosen], DRIVER + CHILD)
    trial.python(f"{label}: CUDA_VISIBLE_DEVICES=0", chosen[:1], DRIVER + "print(json.dumps(by_cuda()))", "0")
    named = chosen[-1]
    trial.python(f"{label}: CUDA_VISIBLE_DEVICES={named}", [named], DRIVER + "print(json.dumps(by_cuda()))", named)
    trial.python(f"{label}: CUDA_VISIBLE_DEVICES=-1", 100, DRIVER + "print(json.dumps(by_cuda()))", "-1")
    if shutil.which("nvidia-smi"):
        trial.compare(f"{label}: nvidia-smi -L", in_order, ["nvidia-smi", "-L"])
    frameworks = {"torch": (TORCH, chosen), "cupy": (CUPY, chosen), "jax": (JAX, len(chosen))}
    for name, (program, expected) in frameworks.items():
        if importlib.util.find_spec(name):
            trial.python(f"{label}: {name}", expected, program)


def sorted_by_driver() -> list[str]:
    """Return the UUIDs of all cards in NVML's order."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(row) for row in range(pynvml.nvmlDeviceGetCount())]
    return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def main() -> int:
    """Choose each of two cards, both, and none; the exit status says whether all answers were right."""
    uuids = sorted_by_driver()
    if len(uuids) < 2 or not HOOK.exists():
        print(f"{len(uuids)} cards here; two are needed, and the hook: make -C hook")
        return 2
    print(f"{len(uuids)} cards, driver {pynvml.nvmlSystemGetDriverVersion()}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scheduler.sock"
        with ScriptedScheduler(path, HOOK.with_name("libconvgpu-page.so")) as scripted:
            scheduler, trial = ChoosingScheduler(scripted, uuids, 20 * GIB), Trial(path)
            for rows in ([1], [1, 0], [0]):
                scheduler.chosen = rows
                try_choice(trial, [uuids[row] for row in rows], scheduler)
            scheduler.chosen = None
            trial.python("all named by the user: CUDA", len(uuids), DRIVER + "print(json.dumps(len(by_cuda())))")
    print(f"{trial.wrong} wrong")
    return 1 if trial.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
