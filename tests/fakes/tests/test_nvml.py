"""NVML's figures, asked for through nvidia-ml-py as the daemon does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_host import CONTEXT, GIB, CudaProcess, until

CALLS = """
import ctypes, json, sys, pynvml as n
ctypes.CDLL(sys.argv[1] + "/libnvidia-ml.so.1", ctypes.RTLD_GLOBAL)
def error(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as e:
        return e.value
first = error(n.nvmlDeviceGetCount)
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(1)
memory, memory2 = n.nvmlDeviceGetMemoryInfo(d), n.nvmlDeviceGetMemoryInfo(d, version=n.nvmlMemory_v2)
answers = {
    "uninitialised": first,
    "driver": n.nvmlSystemGetDriverVersion(),
    "cuda": n.nvmlSystemGetCudaDriverVersion(),
    "count": n.nvmlDeviceGetCount(),
    "uuid": n.nvmlDeviceGetUUID(d),
    "by_uuid": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(d))),
    "name": n.nvmlDeviceGetName(d),
    "minor": n.nvmlDeviceGetMinorNumber(d),
    "bus": n.nvmlDeviceGetPciInfo(d).busId,
    "memory": [memory.total, memory.free, memory.used],
    "memory2": [memory2.total, memory2.reserved, memory2.free, memory2.used],
    "version": error(lambda: n.nvmlDeviceGetMemoryInfo(d, version=0x03000028)),
    "compute": [n.nvmlDeviceGetComputeRunningProcesses(d), n.nvmlDeviceGetComputeRunningProcesses_v2(d)],
    "graphics": n.nvmlDeviceGetGraphicsRunningProcesses(d),
    "no_index": error(n.nvmlDeviceGetHandleByIndex, 2),
    "no_uuid": error(n.nvmlDeviceGetHandleByUUID, "GPU-nobody"),
    "text": str(n.NVMLError(7)),
}
n.nvmlShutdown()
answers["after"] = error(n.nvmlDeviceGetCount)
print(json.dumps(answers))
"""


def in_new_pid_namespace() -> list[str]:
    if os.geteuid() != 0:
        pytest.skip("a pid namespace needs root")
    return ["unshare", "--pid", "--fork", "--kill-child"]


def child_pid(process: CudaProcess) -> int:
    """Return the host's pid of the process that unshare started."""
    children = Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children")
    return int(until(children.read_text, bool))


def test_answers_about_a_device(make_host) -> None:
    host = make_host(4 * GIB, 2 * GIB)
    worker = [sys.executable, "-c", CALLS, str(host.directory)]
    done = subprocess.run(worker, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "uninitialised": 1,
        "driver": "simulated",
        "cuda": 13000,
        "count": 2,
        "uuid": host.uuids[1],
        "by_uuid": 1,
        "name": "Simulated GPU",
        "minor": 1,
        "bus": "00000000:02:00.0",
        "memory": [2 * GIB, 2 * GIB, 0],
        "memory2": [2 * GIB, 0, 2 * GIB, 0],
        "version": 25,
        "compute": [[], []],
        "graphics": [],
        "no_index": 2,
        "no_uuid": 6,
        "text": "Insufficient Size",
        "after": 1,
    }


def test_processes_are_listed_with_all_they_hold(make_host) -> None:
    host = make_host(8 * GIB, 8 * GIB)
    first, second, observer = (host.process() for _ in range(3))
    first.start(0)
    first.allocate(GIB)
    second.start(0)
    second("cuInit", 0)
    pids = [str(process.popen.pid) for process in (first, second)]
    expected = {pids[0]: GIB + CONTEXT, pids[1]: CONTEXT}
    assert observer("nvml", 0) == [0, GIB + 2 * CONTEXT, expected]
    assert observer("nvml", 1) == [0, 0, {}]
    assert first("nvml", 0) == [0, GIB + 2 * CONTEXT, expected]  # both libraries in one process
    first.kill()
    assert observer("nvml", 0) == [0, CONTEXT, {pids[1]: CONTEXT}]


def test_a_dead_process_is_not_listed_while_its_memory_settles(make_host) -> None:
    host = make_host(8 * GIB, settle_us_per_gib=60_000_000)
    victim, observer = host.process(), host.process()
    victim.start()
    victim.kill()
    assert observer("nvml", 0) == [0, CONTEXT, {}]


def test_a_dead_process_is_listed_as_long_as_somebody_keeps_its_control_descriptor(make_host) -> None:
    """As on the H200: it is copied through a socket, or inherited; other descriptors of the driver keep nothing."""
    host = make_host(8 * GIB)
    giver, taker, observer = host.process(), host.process(), host.process()
    giver.start()
    giver.allocate(GIB)
    expected = [0, GIB + CONTEXT, {str(giver.popen.pid): GIB + CONTEXT}]
    folder = Path(f"/proc/{giver.popen.pid}/fd")
    files = [int(one.name) for one in folder.iterdir() if one.readlink().parent == host.directory]
    locked = {one for one in files if "lock:" in Path(f"/proc/{giver.popen.pid}/fdinfo/{one}").read_text()}
    copies = {}
    for one in files:
        path = str(host.directory / f"socket{one}")
        giver.ask("give", path, one)
        copies[one] = taker("take", path)[1]
        assert giver.answer() == [0]
    assert observer("nvml", 0) == expected
    giver.kill()
    assert observer("nvml", 0) == expected
    control = [one for one in locked if Path(f"/proc/{taker.popen.pid}/fd/{copies[one]}").readlink().name == "devices"]
    assert len(control) == 1
    for one in set(files) - set(control):
        taker("close", copies[one])
    assert observer("nvml", 0) == expected
    taker("close", copies[control[0]])
    assert observer("nvml", 0) == [0, 0, {}]


def test_pids_are_those_of_the_asking_namespace(make_host) -> None:
    host = make_host(8 * GIB)
    namespace = in_new_pid_namespace()
    inside, observer, stranger = host.process(prefix=namespace), host.process(), host.process(prefix=namespace)
    inside.start()
    assert observer("nvml", 0) == [0, CONTEXT, {str(child_pid(inside)): CONTEXT}]
    assert inside("nvml", 0) == [0, CONTEXT, {"1": CONTEXT}]
    assert stranger("nvml", 0) == [0, CONTEXT, {}]  # sees the use, not the pid
    stranger.start()
    assert stranger("nvml", 0) == [0, 2 * CONTEXT, {"1": CONTEXT}]  # both are pid 1 to themselves
    pids = {str(child_pid(process)): CONTEXT for process in (inside, stranger)}
    assert observer("nvml", 0) == [0, 2 * CONTEXT, pids]


def test_a_forked_child_does_not_end_its_parents_nvml(make_host) -> None:
    host = make_host(8 * GIB)
    process = host.process()
    process.start()
    assert process("nvml", 0)[1] == CONTEXT
    pid = str(process.popen.pid)
    assert process("fork", ["nvml", 0]) == [[0, CONTEXT, {pid: CONTEXT}]]
    assert process("nvml", 0) == [0, CONTEXT, {pid: CONTEXT}]
