"""Whole limits where not all of what they need can come: a device is drained, or one of a gang has ended."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo
from convgpu.protocol.event_kinds import WaitReason


@pytest.mark.parametrize("gang", ["", "train:2"])
def test_who_waits_for_a_drained_device_with_whole_limits_holds_nobody_back_on_others(gang: str) -> None:
    """It cannot be served, whoever ends; an empty device waited with it."""
    host = CheckedHost(Machine({"gpu": 10, "gpu1": 10}, Fifo(), 10.0))
    host.dispatch(e.DeviceDrained("gpu1", drained=True))
    host.create("a", {"gpu": 8} if gang else {"gpu": 8, "gpu1": 8}, is_whole=True, gang=gang)
    first = host.allocate(host.start("a"), 1)
    if gang:
        host.create("b", {"gpu1": 8}, gang=gang)
        host.allocate(host.start("b"), 1, "gpu1")
    host.now = 20.0
    host.create("younger", {"gpu": 5})
    younger = host.start("younger")
    assert host.allocate(younger, 5) in host.answers
    assert host.machine.explain(host.now)[first].reason is WaitReason.DRAINED
    host.dispatch(e.DeviceDrained("gpu1", drained=False))
    host.create("last", {"gpu": 3})
    assert host.allocate(host.start("last"), 3) in host.pending  # it holds back again
    host.end(younger)
    assert first in host.answers
    host.check()


def test_a_restart_remembers_who_of_a_gang_has_ended() -> None:
    host = CheckedHost(Machine({"gpu": 16}, Fifo()))
    for name in ("w0", "w1", "w2"):
        host.create(name, {"gpu": 4}, gang="train:3")
        host.allocate(host.start(name), 2)
    host.finish("w1")
    host.finish("w2")
    host.restart(Machine({"gpu": 16}, Fifo(), recovering=True))
    host.reconnect_previous(0)
    host.dispatch(e.RecoveryEnded())
    host.mount("w1")
    assert host.allocate(host.start("w1"), 2) in host.answers  # `w2` has ended, and is not waited for
    host.check()
