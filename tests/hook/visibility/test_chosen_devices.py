"""A program sees the devices that the scheduler chose, by CUDA and by NVML, and its environment stays its own."""

import pytest

from .conftest import UUIDS, Container

NO_DEVICE, INVALID_DEVICE = 100, 101
NOT_FOUND, INVALID_ARGUMENT = -6, -2
BOTH = "print(json.dumps([nvml(), by_cuda(), nvml()]))"


def named(rows: list[int]) -> list[str]:
    return [UUIDS[row] for row in rows]


@pytest.mark.parametrize("chosen", [[2], [0, 3], [3, 1], [0, 1, 2, 3]])
def test_cuda_and_nvml_show_the_same(container: Container, chosen: list[int]) -> None:
    """A program that asks NVML first has no session: it is shown the driver's order, as it is once CUDA began."""
    container.scheduler.chosen = chosen
    (before, cuda, after), errors = container.run(BOTH)
    assert cuda == after == named(chosen)
    assert before == named(sorted(chosen))
    assert errors == ""


def test_all_are_shown_when_the_user_named_them(container: Container) -> None:
    assert container.run(BOTH) == ([list(UUIDS)] * 3, "")


LISTS: list[tuple[str, list[int] | int, str]] = [
    ("0", [3], ""),
    ("1,0", [1, 3], ""),
    ("{1}", [1], ""),
    ("{3:.12},{1:.12}", [3, 1], ""),
    ("0,-1,1", [3], ""),
    ("-1", NO_DEVICE, ""),
    ("", NO_DEVICE, ""),
    ("0,0", INVALID_DEVICE, ""),
    ("2", NO_DEVICE, "2"),
    ("0,3", [3], "3"),
    ("{0}", NO_DEVICE, "{0}"),
    ("{1},{2}", [1], "{2}"),
]


@pytest.mark.parametrize(("visible", "shown", "unknown"), LISTS)
def test_a_list_of_the_programs_own_chooses_among_them(
    container: Container, visible: str, shown: list[int] | int, unknown: str
) -> None:
    container.scheduler.chosen = [3, 1]
    asked = visible.format(*UUIDS)
    cuda, errors = container.run("print(json.dumps(by_cuda()))", visible=asked)
    assert cuda == (named(shown) if isinstance(shown, list) else shown)
    expected = (
        f"convgpu: CUDA_VISIBLE_DEVICES={asked:.80}: {unknown.format(*UUIDS)} is none of this container's GPUs "
        "(numbers count those alone). Name GPUs by the volume's option `gpus`.\n"
    )
    assert errors == (expected if unknown else "")


def test_an_instance_stays_what_it_is(container: Container) -> None:
    """MIG: nothing of it is shared, and each allocation says so; here only that its name reaches the driver."""
    container.scheduler.chosen = [1]
    instance = f"MIG-{int(UUIDS[2][4:6], 16) ^ 0x80:02x}{UUIDS[2][6:]}"
    assert container.run("print(json.dumps(by_cuda()))", visible=instance) == ([f"GPU-{instance[4:]}"], "")


@pytest.mark.parametrize("visible", [None, "1", "0,1"])
def test_the_environment_stays_as_it_was(container: Container, visible: str | None) -> None:
    container.scheduler.chosen = [2, 0]
    program = "before = environment(); by_cuda(); print(json.dumps([before == environment(), child()]))"
    assert container.run(program, visible=visible) == ([True, str(visible)], "")


def test_threads_read_and_write_the_environment_meanwhile(container: Container) -> None:
    """None of them adds a variable: then the C library itself may free what readers walk through."""
    container.scheduler.chosen = [2]
    program = """
import threading
libc, over, found = ctypes.CDLL(None), [], set()
libc.getenv.restype = ctypes.c_char_p
os.environ["WRITTEN"] = "-1"
def read():
    while not over:
        found.add(libc.getenv(b"CONVGPU_SOCKET"))
def write():
    number = 0
    while not over:
        os.environ["WRITTEN"] = str(number := number + 1)
threads = [threading.Thread(target=work) for work in (read, read, write)]
for thread in threads: thread.start()
shown = by_cuda()
over.append(True)
for thread in threads: thread.join()
os.environ["WRITTEN"] = "last"
left = [entry for entry in environment() if entry.startswith(("CUDA_VISIBLE", "WRITTEN"))]
print(json.dumps([shown, len(found), left]))
"""
    assert container.run(program) == ([named([2]), 1, ["WRITTEN=last"]], "")


def test_a_forked_child_asks_for_itself(container: Container) -> None:
    """The container may have other devices by then; what the child inherits of the environment is the program's."""
    container.scheduler.chosen = [1]
    program = """
nvml()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps([by_cuda(), nvml()]).encode())
    os._exit(0)
os.wait()
print(json.dumps([json.loads(os.read(reader, 4096)), by_cuda()]))
"""
    assert container.run(program) == ([[named([1])] * 2, named([1])], "")
    assert len(container.scheduler.hellos) == 2


def test_cuda_may_begin_twice(container: Container) -> None:
    container.scheduler.chosen = [3]
    program = """
import threading
seen = []
threads = [threading.Thread(target=lambda: seen.append(by_cuda())) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([*seen, cuda.cuInit(1), by_cuda()]))
"""
    assert container.run(program) == ([*[named([3])] * 4, 1, named([3])], "")


def test_a_failed_start_can_be_tried_again(container: Container) -> None:
    """As PyTorch users do in a notebook: the list is set right, and CUDA starts."""
    container.scheduler.chosen = [3, 1]
    program = """
first = by_cuda()
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
print(json.dumps([first, by_cuda(), [one for one in environment() if "CUDA" in one]]))
"""
    answers = [NO_DEVICE, named([1]), ["CUDA_VISIBLE_DEVICES=1"]]
    assert container.run(program, visible="-1") == (answers, "")


def test_handles_of_other_devices_are_not_found(container: Container) -> None:
    container.scheduler.chosen = [2]
    program = """
n.nvmlInit()
def seen():
    by_uuid = [error(lambda: n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(one))) for one in UUIDS]
    by_bus = [error(lambda: n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(f"00000000:{row + 1:02X}:00.0")))
              for row in range(4)]
    by_serial = [error(lambda: n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleBySerial(f"165{row + 1:010}")))
                 for row in range(4)]
    return [by_uuid, by_bus, by_serial, error(n.nvmlDeviceGetHandleByIndex, 1)]
before = seen()
by_cuda()
print(json.dumps([before, seen()]))
"""
    found = [NOT_FOUND, NOT_FOUND, 0, NOT_FOUND]
    expected = [found, found, found, INVALID_ARGUMENT]
    assert container.run(f"UUIDS = {UUIDS}\n{program}") == ([expected, expected], "")


def test_nvml_that_was_not_started_says_so(container: Container) -> None:
    container.scheduler.chosen = [2]
    program = """
calls = [lambda: n.nvmlDeviceGetCount(), lambda: n.nvmlDeviceGetHandleByIndex(0),
         lambda: n.nvmlDeviceGetHandleByIndex(3), lambda: n.nvmlDeviceGetHandleByUUID("GPU-x")]
library = ctypes.CDLL("libnvidia-ml.so.1")
n.nvmlInit()
n.nvmlShutdown()
print(json.dumps([error(call) for call in calls]))
"""
    assert container.run(program) == ([-1] * 4, "")


def test_a_count_and_the_handles_after_it_are_one_question(container: Container) -> None:
    container.scheduler.chosen = [0, 3]
    assert container.run("print(json.dumps(nvml() + nvml()))") == (named([0, 3, 0, 3]), "")
    assert container.scheduler.observed == len(UUIDS)
    assert container.scheduler.hellos == []  # who only asks NVML has no session


def test_chosen_devices_that_are_not_in_the_container(container: Container) -> None:
    """The scheduler knows of four, this driver of fewer: said in one line, and nothing else is shown."""
    container.scheduler.chosen = [3]
    program = """
devices = os.environ["SIMULATED_GPU_DIRECTORY"] + "/devices"
rows = open(devices).read().splitlines(keepends=True)
open(devices, "w").writelines(rows[:2])
print(json.dumps(by_cuda()))
"""
    line = (
        f"convgpu: not all of this container's GPUs ({UUIDS[3]}) are in it: start it with "
        "`--gpus all`, or name its GPUs by the volume's option `gpus`.\n"
    )
    assert container.run(program) == (NO_DEVICE, line)
