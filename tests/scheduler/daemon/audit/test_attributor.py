"""What processes may have on a device, against which NVML's count is held."""

from types import SimpleNamespace
from typing import Any, cast

from convgpu.daemon.audit.attributor import Attributor


def test_what_lies_on_the_host_may_not_lie_on_the_device_as_well() -> None:
    """What comes back is on the device before the process has said so."""
    machine = SimpleNamespace(lease=lambda _session, _device: 10, on_host=lambda *_: (7, 2))
    sessions = SimpleNamespace(by_number={1: SimpleNamespace(number=1, pid=42, rows=("gpu",))})
    attributor = Attributor(cast("Any", machine), cast("Any", sessions), cast("Any", None))
    assert attributor.leases({42, 43}) == {(42, "gpu"): 5}
