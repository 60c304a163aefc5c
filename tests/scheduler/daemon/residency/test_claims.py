"""What processes whose memory may leave claim to hold, and where: driver and porter have to have it (decision 160)."""

from pathlib import Path

import pytest
from daemon import CONTEXT, GIB, Daemon, elastic_process, running_daemon, wait_until

from convgpu.protocol import messages as m
from convgpu.protocol.residency import messages as r

MIB = 1 << 20
ELASTIC = ("--oversubscribe=2.0", "--host-memory=2g", "--audit=0")
MOST = (1 << 64) - 1


def out(daemon: Daemon) -> tuple[int, int]:
    """Bytes of the device that are out, and those of the liar."""
    [device] = daemon.admin.request("devices")["devices"]  # type: ignore[misc] # as JSON has it
    [of_liar] = daemon.state("liar")["devices"]  # type: ignore[misc]
    return device["out"], of_liar["out"]


def reasons(daemon: Daemon, name: str) -> list[str]:
    return [waiting["reason"] for waiting in daemon.state(name)["waiting"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("claim", [GIB, 1 << 62, MOST])
def test_what_no_porter_has_a_copy_of_is_not_out(tmp_path: Path, claim: int) -> None:
    """It counted: the card had as much more room, and others were granted memory that there was not."""
    with running_daemon(tmp_path / "d", "simulated:4GiB", *ELASTIC) as daemon:
        liar, uuid = elastic_process(daemon, "liar", "3g")
        assert liar.ask(m.Allocate(0, 2 * GIB, "cuMemAlloc")) == m.Accepted(2 * GIB, 0)
        wait_until(lambda: daemon.admin.request("devices")["devices"][0]["pool"] == 2 * GIB, "the host gave its part")  # type: ignore[index] # as JSON has it
        liar.send(r.State(1, 0, (r.StateRow(uuid, 0, 0, claim),)))
        liar.send(r.Evicted(1, 0, claim))
        liar.ask(m.Query(0))
        assert out(daemon) == (0, 0)
        honest, _ = elastic_process(daemon, "honest", "3g")
        honest.allocate(2 * GIB + 64 * MIB)
        wait_until(lambda: reasons(daemon, "honest") == ["card"], "it waits for room on the card")


def test_after_a_restart_no_more_is_believed_than_driver_and_porter_have(tmp_path: Path) -> None:
    """Two that claimed all of their limits were believed, because no driver counts what is on the host."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *ELASTIC) as daemon:
        liars = [elastic_process(daemon, name, "15g") for name in "ab"]
        honest, _ = elastic_process(daemon, "c", "12g")
        honest.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
        honest.hold(9 * GIB)
        daemon.kill()
        daemon.start()
        for liar, uuid in liars:
            liar.reconnect(((uuid, 15 * GIB),))
            # The context of the killed porter may not have come back yet: that could be anybody's.
            assert liar.ask(m.Query(0)) in (m.Usage(15 * GIB, 0, 0), m.Usage(15 * GIB, CONTEXT, 0))
        honest.reconnect(((uuid, 9 * GIB),))
        assert honest.ask(m.Query(0)) == m.Usage(12 * GIB, 9 * GIB, 0)
