"""NVML in a container: its limit, its usage and its processes, with the pids that they have there."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from compiled import ROOT
from daemon import DRIVER, Daemon
from hooked_program import SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import BINARY_UUIDS, GIB, MIB

from convgpu.protocol.messages import Observe, Observed, ProcessRow

Join = Callable[..., Program]
Smi = Callable[..., list[tuple[int, ...]]]
CONTEXT = 526 * MIB
UNKNOWN = -999
LISTS = (ROOT / "hook/src/tables/nvml_calls.h").read_text()
HOOKED = re.findall(r"X\((nvml\w+), \(", LISTS)
UNHANDLED = dict(re.findall(r"X\((nvml\w+), ([A-Z]+)\)", LISTS))


def environment_of(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "LD_PRELOAD": str(folder / "libconvgpu.so"),
        "LD_LIBRARY_PATH": str(folder / "driver"),
    }


def read(text: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, line.split())) for line in text.splitlines()]


@pytest.fixture
def smi(programs: Path) -> Smi:
    """Run our nvidia-smi in a container's place; nothing may be on stderr."""

    def run(folder: Path, lookup: str = "dlsym", **environment: str) -> list[tuple[int, ...]]:
        command = [programs / "linked-smi"] if lookup == "linked" else [programs / "smi", lookup]
        settings = environment_of(folder) | environment
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True, timeout=120)
        assert done.stderr == ""
        return read(done.stdout)

    return run


@pytest.mark.parametrize("lookup", ["linked", "dlsym", "default"])
def test_a_container_sees_its_own(daemon: Daemon, join: Join, smi: Smi, lookup: str) -> None:
    folder, other = daemon.container("a", memory="4g"), daemon.container("b", memory="8g")
    assert smi(folder, lookup) == [(0, 4 * GIB, 0, 4 * GIB), (1, 4 * GIB, 0, 4 * GIB)]
    first, second, stranger = join(folder), join(folder), join(other)
    assert first.call(f"alloc {GIB}").code == SUCCESS
    assert stranger.call(f"alloc {5 * GIB}").code == SUCCESS
    used = GIB + 2 * CONTEXT
    assert smi(folder, lookup) == [
        (0, 4 * GIB, used, 4 * GIB - used),
        (0, first.pid, GIB + CONTEXT),
        (0, second.pid, CONTEXT),
        (1, 4 * GIB, 0, 4 * GIB),
    ]
    assert [len(daemon.state(name)["sessions"]) for name in "ab"] == [2, 1]  # those that look are no sessions
    card = smi(other, lookup, LD_PRELOAD="")
    used += 5 * GIB + CONTEXT
    assert card[0] == (0, 16 * GIB, used, 16 * GIB - used)
    assert {row[1] for row in card[1:-1]} == {first.pid, second.pid, stranger.pid}


def test_a_device_that_the_container_has_not_is_not_shown(daemon: Daemon, join: Join, smi: Smi) -> None:
    folder = daemon.container("a", memory="4g", gpus="1")
    join(daemon.container("b", memory="4g"))
    assert smi(folder) == [(0, 4 * GIB, 0, 4 * GIB)]


def test_a_limit_that_the_first_program_brings(daemon: Daemon, smi: Smi) -> None:
    folder = daemon.container("a")
    assert smi(folder, CONVGPU_MEMORY="3g")[0] == (0, 3 * GIB, 0, 3 * GIB)
    assert daemon.state("a")["devices"][0]["limit"] == 3 * GIB


def test_pids_are_those_of_the_container(daemon: Daemon, join: Join, programs: Path) -> None:
    """The first process of a pid namespace starts one with memory, and looks."""
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    folder = daemon.container("a", memory="4g")
    outside = join(folder)
    script = f"mkfifo said; tail -f /dev/null | {DRIVER}/gpu-hold --wait-for-stdin 1g > said & "
    script += 'exec 3< said; while [ "$event" != hold ]; do read -r time event rest <&3 || exit 1; done; '
    script += f"{programs}/smi dlsym; echo 0 $!; kill $!"
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
    done = subprocess.run(
        command,
        env=environment_of(folder),
        cwd=daemon.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    device, held, _other, [_zero, inside] = read(done.stdout)
    assert device == (0, 4 * GIB, GIB + 2 * CONTEXT, 3 * GIB - 2 * CONTEXT)
    assert held == (0, inside, GIB + CONTEXT)
    assert inside < 100
    assert outside.pid != inside


LOOK = """
import ctypes, json, pynvml as n, sys
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
def look():
    memory, memory2 = n.nvmlDeviceGetMemoryInfo(device), n.nvmlDeviceGetMemoryInfo(device, version=n.nvmlMemory_v2)
    lists = [getattr(n, f"nvmlDeviceGet{kind}RunningProcesses{version}")(device)
             for kind in ("Compute", "Graphics", "MPSCompute") for version in ("_v2", "_v3")]
    lists += [n.nvmlDeviceGetRunningProcessDetailList(device, n.nvmlProcessDetailList_v1, mode) for mode in range(3)]
    return [[memory.total, memory.used, memory.free], [memory2.total, memory2.reserved, memory2.used, memory2.free],
            [[(row.pid, row.usedGpuMemory) for row in rows] for rows in lists]]
print(json.dumps(look()), flush=True)
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
print(json.dumps(look()), flush=True)
sys.stdin.readline()
print(json.dumps(look()), flush=True)
"""


def test_pynvml_before_and_after_cuda_and_without_a_scheduler(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    process = subprocess.Popen(
        [sys.executable, "-c", LOOK],
        env=environment_of(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == [[4 * GIB, 0, 4 * GIB], [4 * GIB, 0, 0, 4 * GIB], [[]] * 9]
    seen = json.loads(process.stdout.readline())
    own = [[process.pid, CONTEXT]]
    lists = [own, own, [], [], [], [], own, [], []]
    assert seen == [[4 * GIB, CONTEXT, 4 * GIB - CONTEXT], [4 * GIB, 0, CONTEXT, 4 * GIB - CONTEXT], lists]
    daemon.kill()
    output, errors = process.communicate("\n", timeout=120)
    assert json.loads(output) == seen  # by what the process knows of itself
    assert (process.returncode, errors) == (0, "")


def nvml_of(folder: Path, statement: str) -> tuple[str, str]:
    script = f"import pynvml as n; n.nvmlInit(); d = n.nvmlDeviceGetHandleByIndex(0)\n{statement}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment_of(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip(), done.stderr


ERROR = """
import ctypes
def error(name, *arguments):
    return getattr(n.nvmlLib, name)(*arguments)
"""


def test_errors_of_the_driver_pass(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="4g")
    compute = "'nvmlDeviceGetComputeRunningProcesses_v3'"
    questions = [
        "error('nvmlDeviceGetMemoryInfo', d, None)",
        "error('nvmlDeviceGetMemoryInfo', None, ctypes.byref(n.c_nvmlMemory_t()))",
        "error('nvmlDeviceGetMemoryInfo_v2', d, ctypes.byref(n.c_nvmlMemory_v2_t()))",
        f"error({compute}, d, None, None)",
        f"error({compute}, d, ctypes.byref(ctypes.c_uint(1)), None)",
        f"error({compute}, None, ctypes.byref(ctypes.c_uint(0)), None)",
        "error('nvmlDeviceGetRunningProcessDetailList', d, None)",
        "n.nvmlShutdown()",
        "error('nvmlDeviceGetMemoryInfo', d, ctypes.byref(n.c_nvmlMemory_t()))",
        f"error({compute}, d, ctypes.byref(ctypes.c_uint(0)), None)",
    ]
    statement = ERROR + "print([" + ", ".join(questions) + "])"
    assert nvml_of(folder, statement) == ("[2, 2, 25, 2, 2, 2, 2, None, 1, 1]", "")


def test_too_little_room_says_how_much_is_needed(daemon: Daemon, join: Join) -> None:
    folder = daemon.container("a", memory="4g")
    holders = [join(folder) for _ in range(3)]
    statement = (
        ERROR
        + """
for room in (0, 2, 3, 4):
    count, rows = ctypes.c_uint(room), (n.c_nvmlProcessInfo_v3_t * 4)()
    result = error("nvmlDeviceGetComputeRunningProcesses_v3", d, ctypes.byref(count), rows if room else None)
    print(room, result, count.value, *(row.pid for row in rows))
"""
    )
    output, errors = nvml_of(folder, statement)
    pids = tuple(holder.pid for holder in holders)
    full, none = (*pids, 0), (0, 0, 0, 0)
    assert read(output) == [(0, 7, 3, *none), (2, 7, 3, *pids[:2], 0, 0), (3, 0, 3, *full), (4, 0, 3, *full)]
    assert errors == ""


def test_without_a_scheduler_only_the_figures_are_missing(daemon: Daemon, join: Join, programs: Path) -> None:
    folder = daemon.container("a", memory="4g")
    assert join(folder).pid
    assert daemon.stop() == 0
    done = subprocess.run(
        [programs / "smi", "dlsym"], env=environment_of(folder), capture_output=True, text=True, check=True, timeout=20
    )
    assert read(done.stdout) == [(0, UNKNOWN), (0, UNKNOWN), (1, UNKNOWN), (1, UNKNOWN)]
    [line] = done.stderr.splitlines()
    assert line == f"convgpu: no memory figures from the scheduler at {folder}/scheduler.sock: nobody listens."
    assert nvml_of(folder, "print(n.nvmlDeviceGetName(d))") == ("Simulated GPU", "")


def test_of_those_that_draw_only_the_containers_are_shown(
    hook: Path, programs: Path, scheduler: ScriptedScheduler
) -> None:
    script = """
import ctypes
class Row(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong if name == "used" else ctypes.c_uint) for name in ("pid", "used", "a", "b")]
nvml, rows, count = ctypes.CDLL("libnvidia-ml.so.1"), (Row * 4)(), ctypes.c_uint(1)
for _turn in range(2):
    print(nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(None, ctypes.byref(count), rows), count.value,
          *((row.pid, row.used, row.a, row.b) for row in rows if row.pid))
"""
    settings = environment_of(hook) | {
        "LD_LIBRARY_PATH": str(programs / "drawing"),
        "CONVGPU_SOCKET": str(scheduler.path),
        "DRAWING": "4711,4712,4713,0",
    }
    process = subprocess.Popen([sys.executable, "-c", script], env=settings, stdout=subprocess.PIPE, text=True)
    for _turn in range(2):
        peer = scheduler.accept_silent()
        assert peer.receive() == (1, Observe(BINARY_UUIDS[0], ""))
        peer.send(Observed(GIB, MIB, (ProcessRow(7, 4713, 1), ProcessRow(5, 0, 1), ProcessRow(6, 4711, 1))), 1)
    output, _errors = process.communicate(timeout=120)
    assert output.splitlines() == ["7 2 (6, 100, 7, 8)", "0 2 (6, 100, 7, 8) (7, 102, 7, 8)"]


def test_every_call_of_nvml_about_memory_processes_or_devices_is_on_a_list() -> None:
    source = Path(str(pynvml.__file__)).read_text()
    names = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', source))
    about = {name for name in names if re.search(r"Memory|MemSize|Process|Accounting", name)}
    about |= {
        name for name in names if re.search(r"GetCount|GetIndex|GetHandleBy|MigDeviceHandle|NearestGpus$|GpuSet$", name)
    }
    about -= {
        name
        for name in names
        if re.search(
            r"Vgpu|MemoryClock|MemoryLocked|AccountingMode$|^nvmlDeviceSet|^nvmlUnit|^nvmlDeviceIsMig|GpuInstance", name
        )
    }
    listed = set(HOOKED) | set(UNHANDLED)
    assert {name for name in about if name not in listed and re.sub(r"_v\d+$", "", name) not in listed} == set()


def test_every_reason_is_explained() -> None:
    explained = re.findall(r"^ \* - ([A-Z]+): ", LISTS, re.MULTILINE)
    assert sorted(set(UNHANDLED.values())) == sorted(explained)


def test_an_instance_of_a_card_is_full(daemon: Daemon, programs: Path) -> None:
    """MIG: it is no part of the card's limit, and no memory can be had of it."""
    folder = daemon.container("a", memory="4g")
    script = (
        "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); memory = (ctypes.c_ulonglong * 3)()\n"
        "print(nvml.nvmlDeviceGetMemoryInfo(None, memory), *memory)"
    )
    uuid = str(daemon.state("a")["devices"][0]["uuid"])
    for name, (used, total) in {uuid: (0, 4 * GIB), f"MIG-{uuid[4:-4]}0000": (16 * GIB, 16 * GIB)}.items():
        settings = environment_of(folder) | {"LD_LIBRARY_PATH": str(programs / "drawing"), "INSTANCE": name}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=True, timeout=120)
        assert read(done.stdout) == [(0, total, total - used, used)]
