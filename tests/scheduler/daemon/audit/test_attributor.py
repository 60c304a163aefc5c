"""What processes may have on a device, against which NVML's count is held."""

import asyncio
import os
from contextlib import ExitStack
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core.audit.attribution import ALL, UNCOUNTED, Kept, MemorySample, Owner
from convgpu.core.audit.listed import Listing
from convgpu.core.placement import Choice
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.audit.doubts.claims import Claims
from convgpu.daemon.audit.doubts.ended_processes import EndedProcesses
from convgpu.daemon.system.procfs import start_time


def test_what_lies_on_the_host_may_not_lie_on_the_device_as_well() -> None:
    """What comes back is on the device before the process has said so."""
    machine = SimpleNamespace(lease=lambda _session, _device: 10, on_host=lambda *_: (7, 2))
    sessions = SimpleNamespace(by_number={1: SimpleNamespace(number=1, pid=42, rows=("gpu",))})
    attributor = Attributor(cast("Any", machine), cast("Any", sessions), cast("Any", None))
    assert attributor.leases({42, 43}) == {(42, "gpu"): 5}


def test_what_the_limit_counts_of_a_dead_one_is_its_open_lease_and_what_it_is_about_to_free() -> None:
    """Who lives with the pid of a dead one is another process."""
    machine = SimpleNamespace(lease=lambda number, _device: 10 * number, on_host=lambda *_: (0, 0))
    rows = [SimpleNamespace(number=number, pid=40 + number, rows=("gpu",)) for number in (1, 2)]
    sessions = SimpleNamespace(by_number={row.number: row for row in rows})
    ended = EndedProcesses(counted=lambda pid, device: {(41, "gpu"): 5, (43, "gpu"): 7}.get((pid, device), 0))
    attributor = Attributor(cast("Any", machine), cast("Any", sessions), cast("Any", None), ended=ended)
    kept = [Kept(pid, 30, A, is_left=False) for pid in (41, 42, 43, 44)]
    listing = Listing({42: 8}, {42: A}, kept)
    assert [one.counted for one in attributor._count_once(listing, "gpu")] == [15, 0, 7, 0]


def test_whose_memory_is_is_not_told_by_who_has_the_pid_by_then() -> None:
    """An answer can take seconds: the process that was listed may have ended, and another container have its pid."""
    machine = SimpleNamespace(
        account=lambda *_: None,
        accounts=lambda _: {"gpu": 1},
        runs=lambda _: True,
        choice=lambda _: None,
        offer=lambda _: {},
    )
    index = SimpleNamespace(owner_of=lambda _: (None, "c"), container_of=lambda _: "c", by_pid={}, by_id={})
    pid, found = os.getpid(), []
    for start in (start_time(pid), start_time(pid) - 1):
        attributor = Attributor(cast("Any", machine), cast("Any", SimpleNamespace()), cast("Any", None))
        sample = MemorySample("gpu", 99, 99, {pid: 80}, starts={pid: start}, listed={pid: 80})
        found.append([(one.name, one.pid) for one in attributor.without_limit(sample, cast("Any", index))])
    assert found == [[("c", 0)], []]


GIB = 1 << 30
A = Owner("a", "id")


@pytest.mark.parametrize(
    ("nobodys", "found", "listed", "claimed", "unseen"),
    [
        # What another's hook accounts for as managed memory is not nobody's, nor what the driver takes for a context.
        (0, 3 * GIB, GIB, 0, 3 * GIB),
        (2 * GIB, 3 * GIB, GIB, 2 * GIB, 3 * GIB),
        (4 * GIB, 3 * GIB, GIB, 3 * GIB, 3 * GIB),
        (4 * GIB, ALL, GIB, 4 * GIB, 0),  # who disturbs has what is left when others have what they map
        (2 * GIB, 3 * GIB, 0, 2 * GIB + UNCOUNTED, 3 * GIB),  # it takes nothing for who has none
    ],
)
def test_what_is_found_of_dead_ones_is_no_more_than_what_is_nobodys(
    nobodys: int, found: int, listed: int, claimed: int, unseen: int
) -> None:
    """It stays in what is searched for: else nobody would see that it was freed."""
    pid = os.getpid()
    machine = SimpleNamespace(runs=lambda _: True, account=lambda *_: 1, lease=lambda *_: 0, on_host=lambda *_: (0, 0))
    session = SimpleNamespace(number=1, pid=pid, rows=("gpu",))
    sessions = SimpleNamespace(by_number={1: session}, used_by=lambda *_: 5 * GIB)
    index = SimpleNamespace(owner_of=lambda _: ("b", "other"), by_pid={pid: "b"}, by_id={})
    followed = []
    searching = SimpleNamespace(found=lambda _: {A: found}, follow=lambda sizes, _: followed.append(sizes))
    parts = cast("Any", (machine, sessions, SimpleNamespace(index=lambda: index)))
    attributor = Attributor(*parts, ended=EndedProcesses(unseen=cast("Any", searching)))
    used = 5 * GIB + UNCOUNTED + GIB + nobodys
    sample = MemorySample("gpu", 16 * GIB, used, {pid: listed}, starts={pid: start_time(pid)})
    attributor.claims.see_unlisted("gpu", 0, GIB)
    attribution = attributor.attribute(sample, {}, cast("Any", index))
    asyncio.run(attributor.learn([]))
    assert attribution.seen.get("a", 0) == claimed
    assert (attributor.claims.unseen_on("gpu"), followed) == (unseen, [{"gpu": claimed}])


def test_what_was_listed_of_dead_ones_is_remembered_while_searches_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was freed since would be claimed from others: honest containers were ended for each other's memory."""
    now = [100.0]
    monkeypatch.setattr("convgpu.daemon.audit.doubts.claims.time.monotonic", lambda: now[0])
    claims, found = Claims(None, lambda *_: True), []
    rows = [[Kept(1, 2 * GIB, A, is_left=False), Kept(2, GIB, A, is_left=False), Kept(3, GIB, A, is_left=True)]]
    rows += [[Kept(4, GIB, A, is_left=False), Kept(5, GIB, Owner(), is_left=False)], [], []]
    for at, kept in zip((100.0, 101.0, 101.6, 102.6), rows, strict=True):
        now[0] = at
        claims.note("gpu", kept)
        found.append(dict(claims._listed_lately("gpu")))
    assert found == [{"a": 3 * GIB}, {"a": 3 * GIB}, {"a": GIB}, {}]
    assert claims._listed_lately("other") == {}
    assert len(claims._dead_lately["gpu"]) == 2


@pytest.mark.parametrize(
    ("choice", "held", "sure"),
    [
        (Choice(), [("c1", "gpu0", 6)], []),
        (Choice(), [("c1", "gpu0", 7)], ["c1"]),
        (Choice(), [("c1", "gpu0", 4), ("c2", "gpu0", 3)], ["c1", "c2"]),  # of one volume
        (Choice(), [("c1", "gpu0", 4), ("c1", "gpu1", 3)], ["c1"]),  # of which it gets one
        (Choice(), [("c1", "gpu0", 3), ("c2", "gpu1", 3)], []),
        (Choice(is_default=True), [("c1", "gpu0", 4), ("c1", "gpu1", 3), ("c1", "gpu2", 1)], ["c1"]),
        (Choice(is_default=True), [("c1", "gpu0", 6), ("c1", "gpu1", 6)], []),  # as it may have been given both
        (Choice(2), [("c1", "gpu0", 6), ("c1", "gpu1", 6)], []),
        (Choice(2), [("c1", "gpu0", 5), ("c1", "gpu1", 5), ("c2", "gpu2", 5)], ["c1", "c2"]),
    ],
)
def test_containers_whose_device_is_not_chosen_hold_no_more_than_their_volume_will_have(
    choice: Choice, held: list[tuple[str, str, int]], sure: list[str]
) -> None:
    """A stranger's containers without a session had a limit each, on each device, by one volume."""
    offer = dict.fromkeys(("gpu0", "gpu1", "gpu2"), 6)
    machine = SimpleNamespace(
        account=lambda *_: None, accounts=lambda _: {}, choice=lambda _: choice, offer=lambda _: offer
    )
    with ExitStack() as stack:
        started = [stack.enter_context(Popen(["cat"], stdin=PIPE)).pid for _ in held]
        own = {pid: name for pid, (name, _, _) in zip(started, held, strict=True)}
        index = SimpleNamespace(
            owner_of=lambda pid: ("volume", own[pid]),
            container_of=own.get,
            by_pid=dict.fromkeys(own, 1),
            by_id=dict.fromkeys(own.values(), "volume"),
        )
        attributor = Attributor(cast("Any", machine), cast("Any", SimpleNamespace()), cast("Any", None))
        found: set[str] = set()
        for _look in range(2):  # the first knows the first devices only
            found = set()
            for device in offer:
                pids = {pid: size for pid, (_, at, size) in zip(started, held, strict=True) if at == device}
                starts = {pid: start_time(pid) for pid in pids}
                sample = MemorySample(device, 99, 99, dict(pids), starts=starts, listed=dict(pids))
                found |= {one.id for one in attributor.without_limit(sample, cast("Any", index)) if one.id}
    assert sorted(found) == sure
