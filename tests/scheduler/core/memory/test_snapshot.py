"""The views of the ledger that everybody outside of the core reads."""

import pytest
from checked_host import CheckedHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.memory.account import AccountView
from convgpu.core.memory.snapshot import DeviceView, LedgerSnapshot
from convgpu.policies.memory import Fifo


def test_a_snapshot_holds_every_account_and_device_and_does_not_change() -> None:
    host = CheckedHost(Machine({"gpu": 16, "other": 8}, Fifo()))
    host.create("a", {"gpu": 10, "other": 2})
    host.create("b", {"gpu": 4})
    session = host.start("a")
    host.allocate(session, 3)
    host.dispatch(e.UnleasedMemory("b", "gpu", 1))
    before = host.machine.snapshot()
    unused = AccountView(2, 0, 0, 0, None, {session: 0})
    assert before == LedgerSnapshot(
        accounts={
            "a": {"gpu": AccountView(10, 10, 10, 0, None, {session: 10}), "other": unused},
            "b": {"gpu": AccountView(4, 0, 0, 1, None, {})},
        },
        devices={"gpu": DeviceView(16, 15, 5, 0, 0), "other": DeviceView(8, 8, 8, 0, 0)},
    )
    assert before.on("other") == {"a": unused}
    host.free(session, 3)
    host.end(session)
    host.remove("b")
    assert before.accounts["a"]["gpu"].leases == {session: 10}
    assert before.accounts.keys() == {"a", "b"}
    assert host.machine.snapshot() != before


def test_single_reads_equal_the_snapshot() -> None:
    host = CheckedHost(Machine({"gpu": 16, "other": 8}, Fifo()))
    host.create("a", {"gpu": 10})
    session = host.start("a")
    host.allocate(session, 3)
    machine, snapshot = host.machine, host.machine.snapshot()
    assert machine.devices == snapshot.devices.keys()
    assert machine.device("gpu") == snapshot.devices["gpu"]
    assert machine.accounts("a") == snapshot.accounts["a"]
    assert machine.account("a", "gpu") == snapshot.accounts["a"]["gpu"]
    assert machine.holders == ("a",)
    assert machine.lease(session, "gpu") == machine.account("a", "gpu").leases[session] == 10


def test_an_unknown_container_session_or_device_has_no_account() -> None:
    machine = Machine({"gpu": 16}, Fifo())
    machine.handle(e.ContainerCreated("a", {"gpu": 10}), 0.0)
    assert machine.account("a", "other") is None
    assert machine.account("b", "gpu") is None
    assert machine.accounts("b") == {}
    assert machine.lease(7, "gpu") == 0
    with pytest.raises(KeyError):
        machine.device("other")
