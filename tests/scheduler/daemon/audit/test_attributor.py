"""What processes may have on a device, against which NVML's count is held."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from convgpu.core.audit.attribution import UNCOUNTED, MemorySample, Owner
from convgpu.daemon.audit.attributor import Attributor
from convgpu.daemon.system.procfs import start_time


def test_what_lies_on_the_host_may_not_lie_on_the_device_as_well() -> None:
    """What comes back is on the device before the process has said so."""
    machine = SimpleNamespace(lease=lambda _session, _device: 10, on_host=lambda *_: (7, 2))
    sessions = SimpleNamespace(by_number={1: SimpleNamespace(number=1, pid=42, rows=("gpu",))})
    attributor = Attributor(cast("Any", machine), cast("Any", sessions), cast("Any", None))
    assert attributor.leases({42, 43}) == {(42, "gpu"): 5}


def test_whose_memory_is_is_not_told_by_who_has_the_pid_by_then() -> None:
    """An answer can take seconds: the process that was listed may have ended, and another container have its pid."""
    machine = SimpleNamespace(account=lambda *_: None, accounts=lambda _: {"gpu": 1}, runs=lambda _: True)
    index = SimpleNamespace(owner_of=lambda _: (None, "c"), container_of=lambda _: "c", by_pid={}, by_id={})
    pid, found = os.getpid(), []
    for start in (start_time(pid), start_time(pid) - 1):
        attributor = Attributor(cast("Any", machine), cast("Any", SimpleNamespace()), cast("Any", None))
        sample = MemorySample("gpu", 99, 99, {pid: 80}, starts={pid: start}, listed={pid: 80})
        found.append([(one.name, one.pid) for one in attributor.without_limit(sample, cast("Any", index))])
    assert found == [[("c", 0)], []]


GIB = 1 << 30


class Unseen:
    """Finds 3 GiB of container a."""

    def found(self, device: str) -> Mapping[Owner, int]:
        assert device == "gpu"
        return {Owner("a", "id"): 3 * GIB}


def test_what_is_found_is_no_more_than_what_is_nobodys() -> None:
    """Managed memory is listed for nobody, and is who accounts for it; the driver takes a little for each process."""
    pid = os.getpid()
    machine = SimpleNamespace(account=lambda *_: 1, runs=lambda _: True, lease=lambda *_: 0, on_host=lambda *_: (0, 0))
    session = SimpleNamespace(number=1, pid=pid, rows=("gpu",))
    sessions = SimpleNamespace(by_number={1: session}, used_by=lambda *_: 5 * GIB)
    index = SimpleNamespace(owner_of=lambda _: ("b", "other"), by_pid={pid: session}, by_id={})
    attributor = Attributor(
        cast("Any", machine), cast("Any", sessions), cast("Any", None), unseen=cast("Any", Unseen())
    )
    attributor.see_unlisted("gpu", 0, GIB)
    charged = []
    for nobodys in (0, 2 * GIB):
        used = GIB + 5 * GIB + UNCOUNTED + nobodys
        sample = MemorySample("gpu", 16 * GIB, used, {pid: 0}, starts={pid: start_time(pid)}, listed={pid: 0})
        kept = attributor._tell_apart(sample, cast("Any", index)).kept
        charged.append([(one.owner.volume, one.size) for one in kept])
    assert charged == [[], [("a", 2 * GIB)]]
