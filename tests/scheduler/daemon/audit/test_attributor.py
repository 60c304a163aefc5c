"""What processes may have on a device, against which NVML's count is held."""

import os
from types import SimpleNamespace
from typing import Any, cast

from convgpu.core.audit.attribution import MemorySample
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
