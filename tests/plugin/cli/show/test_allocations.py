"""The tables of `convgpu inspect --allocations`, the lines of `convgpu trace`, and how both are asked for."""

from convgpu.cli.connect.scheduler import route
from convgpu.cli.show import allocations as shown
from convgpu.cli.show.allocations import Group
from convgpu.cli.show.trace import format_line
from convgpu.protocol.inspection.records import Allocation, Allocations, ProcessAllocations, TracedCall
from convgpu.protocol.records import Device
from convgpu.protocol.requests import FollowCalls, ListAllocations

MIB = 1 << 20
GPUS = {"GPU-a": 0, "GPU-b": 1}


def device(uuid: str, index: int) -> Device:
    return Device(uuid, index, "H200", 0, 0, 0, 0, 0, 0, drained=False)


DEVICES = {uuid: device(uuid, index) for uuid, index in GPUS.items()}


def allocation(call: str, size: int, age: int | None = 5, uuid: str = "GPU-a", address: int = 0x1000) -> Allocation:
    return Allocation(call, uuid, address, size, age)


def process(*rows: Allocation, pid: int = 7, usage: int | None = None, **more: object) -> ProcessAllocations:
    size = sum(row.size for row in rows)
    whole = {"answer": "listed", "count": len(rows), "size": size, "usage": size if usage is None else usage} | more
    return ProcessAllocations(pid=pid, program="python", allocations=rows, **whole)  # type: ignore[arg-type]


def test_allocations_are_grouped_by_call_and_device() -> None:
    rows = [
        allocation("cuMemAlloc", MIB, 5),
        allocation("cuMemAlloc", 2 * MIB, 90),
        allocation("cuMemAlloc", 8 * MIB, None, "GPU-b"),
        allocation("cuMemCreate", MIB, None),
    ]
    assert shown.group(rows) == [
        Group("cuMemAlloc", "GPU-b", 1, 8 * MIB, None),
        Group("cuMemAlloc", "GPU-a", 2, 3 * MIB, 90),
        Group("cuMemCreate", "GPU-a", 1, MIB, None),
    ]


def test_each_process_has_its_calls_and_the_rest() -> None:
    answer = Allocations(
        (
            process(allocation("cuMemAlloc", MIB), allocation("cuArrayCreate", 2 * MIB, 7200, "GPU-b"), usage=5 * MIB),
            process(pid=8, answer="silent", usage=9 * MIB),
            process(pid=9, answer="unable"),
            process(pid=0),
        )
    )
    assert shown.group_rows(answer, DEVICES) == [
        ("7", "python", "cuArrayCreate", "1", "1", "2MiB", "2h"),
        ("", "", "cuMemAlloc", "0", "1", "1MiB", "5s"),
        ("", "", "shared pages, modules", "", "", "2MiB", ""),
        ("8", "python", "did not answer", "-", "-", "9MiB", "-"),
        ("9", "python", "its library is too old", "-", "-", "0B", "-"),
        ("-", "python", "no allocations", "-", "-", "0B", "-"),
    ]
    assert shown.remarks(answer) == []


def test_the_largest_come_first_and_what_is_left_out_is_said() -> None:
    rows = [allocation("cuMemAlloc", number * MIB, None, "GPU-x", number << 12) for number in range(1, 31)]
    answer = Allocations((process(*rows, count=100),))
    largest = shown.largest_rows(answer, DEVICES)
    assert (len(largest), largest[0]) == (20, ("7", "cuMemAlloc", "0x1e000", "30MiB", "-", "-"))
    assert shown.remarks(answer) == [
        "70 of 100 allocations were left out: a process lists only so many at once",
        "the 20 largest of 30 allocations are shown one by one; --json shows all",
    ]


def test_a_call_is_one_line() -> None:
    call = TracedCall(0, 0.0, "rejected", 7, "python", "cuMemAlloc", "GPU-b", 5 * MIB, 1.25, "deadline")
    line = format_line(call, GPUS)
    assert " ".join(line.split()[1:]) == "REJECTED cuMemAlloc 5MiB GPU 1 python (pid 7) after 1.2s: deadline"
    quiet = TracedCall(0, 0.0, "accepted", 0, "python", "cuMemAlloc", "", 0)
    assert " ".join(format_line(quiet, GPUS).split()[1:]) == "accepted cuMemAlloc 0B GPU - python"


def test_both_have_a_way_over_http() -> None:
    assert route(ListAllocations("a b")) == ("GET", "/v1/containers/a%20b/allocations?most=10000", None)
    assert route(FollowCalls("a", 5)) == ("GET", "/v1/containers/a/trace?since=5", None)
