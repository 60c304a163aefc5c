"""Processes whose memory may leave, and that lie about where it is: nobody else pays for it (decision 160)."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, connect, elastic_process, running_daemon
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rounds import rounds

from convgpu.protocol import messages as m
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Mover, Outcome

MIB = 1 << 20
ELASTIC = ("--oversubscribe=2.0", "--host-memory=2g")
MOST = (1 << 64) - 1


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("liars") / "d", "simulated:4GiB", *ELASTIC) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def neighbour(daemon: Daemon) -> Process:
    return elastic_process(daemon, "neighbour", "1g")[0]


@pytest.fixture(scope="module")
def attacker(daemon: Daemon) -> Path:
    return daemon.container("attacker", memory="1g", suspend="auto")


def device(daemon: Daemon) -> dict[str, int]:
    [found] = daemon.admin.request("devices")["devices"]  # type: ignore[misc] # as JSON has it
    return found


@pytest.mark.parametrize("epoch", [1 << 63, MOST])
def test_a_number_after_which_none_fits_a_frame_ends_that_connection_and_nothing_else(
    daemon: Daemon, neighbour: Process, epoch: int
) -> None:
    """The next stop had a number that no frame can hold, and the scheduler did not trust its ledger any more."""
    liar, uuid = elastic_process(daemon, f"numbers{epoch}", "1g")
    liar.send(r.State(epoch, 1, (r.StateRow(uuid, 0, 0, 0),)))
    assert b"State is not allowed here" in liar.received()
    assert neighbour.ask(m.Query(0)) == m.Usage(GIB, 0, 0)


def test_the_largest_number_is_stopped_like_any_other(daemon: Daemon, neighbour: Process) -> None:
    liar, uuid = elastic_process(daemon, "largest", "1g")
    liar.send(r.State((1 << 63) - 1, 1, (r.StateRow(uuid, 0, 0, 0),)))
    liar.ask(m.Query(0))
    for word in ("suspend", "resume", "suspend", "resume"):
        daemon.admin.request(word, name="largest")
    assert neighbour.ask(m.Query(0)) == m.Usage(GIB, 0, 0)
    liar.end()


SIZES = st.sampled_from([0, 1, 2 * MIB, 64 * MIB, GIB, 1 << 40, (1 << 63) - 1, 1 << 63, MOST])
EPOCHS = st.sampled_from([0, 1, 2, 1 << 41, (1 << 63) - 1])
ROWS = st.sampled_from([0, 0, 0, 1, 62])


def frames(uuid: bytes) -> st.SearchStrategy[Message]:
    """What a process of an elastic container may say, with figures of any kind."""
    row = st.builds(r.StateRow, st.sampled_from([uuid, uuid, bytes(16)]), SIZES, SIZES, SIZES)
    return st.one_of(
        st.builds(r.Able, st.integers(0, 3), st.integers(0, 3)),
        st.builds(r.Run, EPOCHS),
        st.builds(r.Stopped, EPOCHS, st.sampled_from([*Outcome, 9]), st.integers(0, (1 << 32) - 1), SIZES),
        st.builds(r.Evicted, EPOCHS, ROWS, SIZES, st.integers(0, 1)),
        st.builds(r.Restored, EPOCHS, ROWS, SIZES, st.sampled_from([0, 2])),
        st.builds(r.State, EPOCHS, st.integers(0, 1), st.lists(row, max_size=3).map(tuple)),
        st.builds(r.Idle, st.integers(0, 1), SIZES),
        st.builds(
            m.Allocate, st.just(0), st.sampled_from([4096, 64 * MIB, GIB]), st.just("x"), st.sampled_from([0, 2])
        ),
        st.just(m.Freed(0)),
    )


@given(st.data())
@settings(max_examples=rounds(150, few=40), deadline=None, suppress_health_check=list(HealthCheck))
def test_frames_in_any_order_harm_nobody(
    daemon: Daemon, neighbour: Process, attacker: Path, data: st.DataObject
) -> None:
    uuid = bytes.fromhex(str(device(daemon)["uuid"]).removeprefix("GPU-").replace("-", ""))
    said = [m.Hello(1, "x", "", ()), r.Able(Mover.VMM), *data.draw(st.lists(frames(uuid), min_size=1, max_size=10))]
    with connect(attacker) as connection, contextlib.suppress(OSError):
        connection.settimeout(0.02)
        connection.sendall(b"".join(pack(frame, number) for number, frame in enumerate(said)))
        while True:
            received, descriptors, _flags, _address = socket.recv_fds(connection, 65536, 4)
            for descriptor in descriptors:
                os.close(descriptor)
            if not received:
                break
    assert neighbour.ask(m.Query(0)) == m.Usage(GIB, 0, 0)
    assert device(daemon)["out"] == 0
    assert "Traceback" not in daemon.log.read_text()
