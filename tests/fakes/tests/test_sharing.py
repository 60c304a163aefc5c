"""Processes compete for the memory of a device, and lose nothing however they end."""

import random
import struct
import time

import pytest
from gpu_host import CONTEXT, GIB, MIB, TIMEOUT, until

OUT_OF_MEMORY, SYSTEM_NOT_READY = 2, 802
USED_OFFSET, CHANGING_OFFSET, SLOT_COUNT_OFFSET = 32, 20, 16  # struct shared_state
SLOT_OFFSET, SLOT_SIZE, SETTLED_AT_OFFSET = (
    USED_OFFSET + 63 * 8,
    40 + 4 * 63 * 8 + 16,
    40 + 63 * 8,
)  # struct shared_slot


def test_two_processes_compete_for_one_device(make_host) -> None:
    host = make_host(4 * GIB)
    first, second = host.process(), host.process()
    first.start()
    second.start()
    address = first.allocate(2 * GIB)
    assert second.free_memory() == 2 * GIB - 2 * CONTEXT
    assert second("cuMemAlloc_v2", GIB)[0] == OUT_OF_MEMORY
    assert first("cuMemFree_v2", address) == [0]
    second.allocate(GIB)
    assert first.free_memory() == 3 * GIB - 2 * CONTEXT


def test_devices_are_apart(make_host) -> None:
    host = make_host(4 * GIB, 4 * GIB)
    first, second = host.process(), host.process()
    first.start(0)
    first.allocate(3 * GIB)
    second.start(1)
    assert second.free_memory() == 4 * GIB - CONTEXT


def test_containers_share_by_hard_links(make_host) -> None:
    host = make_host(4 * GIB)
    outside = host.process()
    containers = [host.process(directory=host.container(name)) for name in ("one", "two")]
    outside.start()
    for process in containers:
        process.start()
        process.allocate(GIB)
    assert [one.free_memory() for one in (outside, *containers)] == [2 * GIB - 3 * CONTEXT] * 3
    containers[0].kill()
    assert [one.free_memory() for one in (outside, containers[1])] == [3 * GIB - 2 * CONTEXT] * 2


def test_the_memory_of_a_killed_process_comes_back_late(make_host) -> None:
    host = make_host(4 * GIB, settle_us_per_gib=200_000)
    victim, waiter = host.process(), host.process()
    victim.start()
    victim.allocate(2 * GIB)
    waiter.start()
    victim.kill()
    noticed = time.monotonic()
    assert waiter("cuMemAlloc_v2", 2 * GIB)[0] == OUT_OF_MEMORY
    result = until(lambda: waiter("cuMemAlloc_v2", 2 * GIB)[0], lambda result: result == 0)
    assert (result, time.monotonic() - noticed >= 0.2 * (2 * GIB + CONTEXT) / GIB) == (0, True)


def test_freed_memory_is_there_at_once(make_host) -> None:
    host = make_host(4 * GIB, settle_us_per_gib=60_000_000)
    first, second = host.process(), host.process()
    context = first.start()
    second.start()
    address = first.allocate(2 * GIB)
    assert first("cuMemFree_v2", address) == [0]
    assert second.free_memory() == 4 * GIB - 2 * CONTEXT
    assert first("cuCtxSetCurrent", context) == [0]
    assert first("cuDevicePrimaryCtxReset_v2", 0) == [0]
    assert second.free_memory() == 4 * GIB - CONTEXT


@pytest.mark.parametrize("end", ["kill", "exit", "exec"])
def test_a_process_gives_back_however_it_ends(make_host, end: str) -> None:
    host = make_host(4 * GIB)
    holder, observer = host.process(), host.process()
    observer.start()
    holder.start()
    holder.allocate(GIB)
    match end:
        case "kill":
            holder.kill()
        case "exit":
            holder.popen.stdin.close()
            assert holder.popen.wait(TIMEOUT) == 0
        case "exec":
            holder.ask("exec")
    whole = 4 * GIB - CONTEXT
    assert until(observer.free_memory, lambda free: free == whole) == whole


def test_a_library_loaded_again_is_the_same(make_host) -> None:
    host = make_host(4 * GIB)
    process = host.process()
    process.start()
    process.allocate(GIB)
    assert process("reload") == [0]
    assert process.free_memory() == 3 * GIB - CONTEXT


def test_processes_killed_at_any_instant_block_nobody_and_lose_nothing(make_host) -> None:
    host = make_host(8 * GIB)
    observer = host.process()
    observer.start()
    chance = random.Random(20261121)  # noqa: S311 - to vary, not to hide
    for _ in range(12):
        victims = [host.process() for _ in range(3)]
        for victim in victims:
            victim.start()
            victim.allocate(MIB * chance.randrange(1, 64))
            victim.ask("churn", MIB * chance.randrange(1, 64))
        for victim in victims:
            for _ in range(chance.randrange(1, 50)):
                assert observer("cuMemGetInfo_v2")[0] == 0
            victim.kill()
        assert observer.free_memory() == 8 * GIB - CONTEXT
    with (host.directory / "state").open("rb") as state:
        assert struct.unpack_from("I", state.read(SLOT_COUNT_OFFSET + 4), SLOT_COUNT_OFFSET) == (1,)


def test_a_sum_left_half_written_is_computed_again(make_host) -> None:
    host = make_host(4 * GIB)
    process = host.process()
    process.start()
    process.allocate(GIB)
    with (host.directory / "state").open("r+b", buffering=0) as state:
        state.seek(USED_OFFSET)
        assert struct.unpack("Q", state.read(8)) == (GIB + CONTEXT,)
        state.seek(USED_OFFSET)
        state.write(struct.pack("Q", 12345))
        state.seek(CHANGING_OFFSET)
        state.write(struct.pack("I", 1))
    assert process.free_memory() == 3 * GIB - CONTEXT


def test_threads_and_both_libraries_of_two_processes_exclude_each_other(make_host) -> None:
    host = make_host(16 * GIB)
    processes = [host.process() for _ in range(2)]
    for process in processes:
        process.start()
        process.ask("threads", 4, 5_000, 4 * MIB)
    assert [process.answer() for process in processes] == [[0], [0]]
    assert [process.free_memory() for process in processes] == [16 * GIB - 2 * CONTEXT] * 2


UNFINISHED = b"\0" * 8 + b"\xff" * 100_000  # a first process was killed before it wrote the magic number


@pytest.mark.parametrize("content", [None, b"", UNFINISHED], ids=["missing", "empty", "unfinished"])
def test_eight_processes_initialise_the_state_at_once(make_host, content: bytes | None) -> None:
    host = make_host(16 * GIB)
    (host.directory / "state").unlink()
    if content is not None:
        (host.directory / "state").write_bytes(content)
    processes = [host.process() for _ in range(8)]
    for process in processes:
        process.ask("cuInit", 0)
    assert [process.answer() for process in processes] == [[0]] * 8
    for process in processes:
        process.start()
        process.allocate(GIB)
    assert [process.free_memory() for process in processes] == [8 * GIB - 8 * CONTEXT] * 8


def test_a_new_state_is_for_every_user(make_host) -> None:
    host = make_host(GIB)
    (host.directory / "state").unlink()
    host.process().start()
    assert (host.directory / "state").stat().st_mode & 0o777 == 0o666


def test_other_devices_need_an_unused_state(make_host) -> None:
    host = make_host(4 * GIB)
    first, second, third = (host.process() for _ in range(3))
    first.start()
    (host.directory / "devices").write_text(f"{host.uuids[0]} {8 * GIB}\n")
    assert second("cuInit", 0) == [SYSTEM_NOT_READY]
    assert first.free_memory() == 4 * GIB - CONTEXT
    first.kill()
    third.start()
    assert third.free_memory() == 8 * GIB - CONTEXT


def test_times_from_before_a_reboot_are_over(make_host) -> None:
    host = make_host(4 * GIB, settle_us_per_gib=100_000)
    victim, observer = host.process(), host.process()
    observer.start()
    victim.start()
    victim.kill()
    assert observer.free_memory() == 4 * GIB - 2 * CONTEXT  # noticed; settling from now on
    with (host.directory / "state").open("r+b", buffering=0) as state:
        state.seek(SLOT_OFFSET + SLOT_SIZE + SETTLED_AT_OFFSET)  # the victim's, as the second to start
        state.write(struct.pack("Q", 2**62))
    assert observer.free_memory() == 4 * GIB - CONTEXT


def test_the_deaths_of_many_are_noticed(make_host) -> None:
    host = make_host(64 * GIB)
    observer = host.process()
    observer.start()
    whole = observer.free_memory()
    for round_ in ("asked", "needed"):
        holders = [host.hold("--wait-for-stdin", "2m") for _ in range(70)]
        for holder in holders:
            assert any(" hold " in line for line in holder.stdout)
        listed = observer("nvml", 0)[2]
        assert listed == {str(observer.popen.pid): CONTEXT} | {str(holder.pid): CONTEXT + 2 * MIB for holder in holders}
        for holder in holders:
            holder.kill()
            holder.wait()
        if round_ == "asked":
            assert until(observer.free_memory, lambda free: free == whole) == whole
        else:
            observer.allocate(whole)  # a refusal would be wrong, so all are looked at
