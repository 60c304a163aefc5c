"""What processes say on scheduler.sock, right and wrong."""

import contextlib
import os
import struct
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, connect, running_daemon, wait_until

from convgpu.protocol import messages as m
from convgpu.protocol import wire
from convgpu.protocol.messages import pack
from convgpu.protocol.stream import MessageStream
from convgpu.protocol.wire import Failure, Kind, Reason


def failure(raw: bytes) -> m.Failed:
    [(_, message)] = MessageStream().receive(raw)
    assert isinstance(message, m.Failed)
    return message


def test_an_accepted_allocation_brings_headroom_for_the_next_ones(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="2g"))
    [row] = process.hello().devices
    assert row.limit == 2 * GIB
    assert process.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
    assert process.headroom() == GIB
    assert process.ask(m.Query(0)) == m.Usage(2 * GIB, GIB, 0)


def test_a_pause_ends_when_the_holder_ends(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    waiter = Process(daemon.container("b", memory="10g"))
    holder.hello()
    waiter.hello()
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    request = waiter.allocate(8 * GIB)
    wait_until(lambda: daemon.state("b")["state"] == "waiting", "b waits")
    [paused] = daemon.state("b")["waiting"]
    assert (paused["size"], paused["free"], paused["missing"]) == (8 * GIB, 6 * GIB, 2 * GIB)
    holder.end()
    answer = waiter.answer(request)
    assert (type(answer), answer.size) == (m.Accepted, 8 * GIB)
    assert [event["kind"] for event in daemon.events("paused", "granted")] == ["paused", "granted"]


def test_frees_are_reported_only_while_somebody_waits(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    waiter = Process(daemon.container("b", memory="8g"))
    holder.hello()
    waiter.hello()
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    assert not holder.notify_on_free()
    request = waiter.allocate(8 * GIB)
    wait_until(holder.notify_on_free, "the holder is told to report")
    holder.give(2 * GIB)
    assert waiter.answer(request) == m.Accepted(8 * GIB, 0)
    wait_until(lambda: not holder.notify_on_free(), "the order is taken back")


def test_beyond_the_limit_with_the_exact_usage(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="2g"))
    process.hello()
    process.ask(m.Allocate(0, GIB, "cuMemAlloc"))
    assert process.ask(m.Allocate(0, 2 * GIB, "cuMemAlloc")) == m.Rejected(Reason.LIMIT, 2 * GIB, GIB)
    assert process.ask(m.Allocate(0, 3 * GIB, "cuMemAlloc")) == m.Rejected(Reason.LIMIT, 2 * GIB, GIB)
    assert process.ask(m.Allocate(7, 1, "cuMemAlloc")) == m.Rejected(Reason.DEVICE, 0, 0)


def test_the_option_wait_ends_a_pause_with_a_rejection(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    waiter = Process(daemon.container("b", memory="10g", wait="50ms"))
    holder.hello()
    waiter.hello()
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    assert waiter.ask(m.Allocate(0, 8 * GIB, "cuMemAlloc")) == m.Rejected(Reason.DEADLINE, 10 * GIB, 0)


def test_a_limit_may_come_from_the_container_when_the_volume_has_none(daemon: Daemon) -> None:
    folder = daemon.container("a")
    process = Process(folder)
    process.socket.sendall(pack(m.Hello(1, "test", ""), 1))
    failed = failure(process.received())
    assert (failed.failure, "CONVGPU_MEMORY" in failed.text) == (Failure.NO_LIMIT, True)
    assert Process(folder).hello("3g").devices[0].limit == 3 * GIB
    assert Process(folder).hello("9g").devices[0].limit == 3 * GIB  # the first word counts


@pytest.mark.parametrize("memory", ["0", "-1", "2XB", "17g"])
def test_a_limit_of_the_container_that_cannot_be(daemon: Daemon, memory: str) -> None:
    process = Process(daemon.container("a"))
    process.socket.sendall(pack(m.Hello(1, "test", memory), 1))
    failed = failure(process.received())
    assert failed.failure == Failure.NO_LIMIT
    assert failed.text.startswith(f"memory={memory}: ")


def header(size: int, version: int = wire.VERSION, kind: int = Kind.QUERY) -> bytes:
    return struct.pack("=IHHQ", size, version, kind, 5)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (header(120, version=1), Failure.VERSION),
        (header(120, version=9), Failure.VERSION),
        (header(1 << 31), Failure.MALFORMED),
        (header(24, kind=77), Failure.MALFORMED),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Failure.VERSION),
        (pack(m.Query(0), 5), Failure.ORDER),
        (pack(m.Admin(b"{}"), 5), Failure.ORDER),
        (header(20, kind=Kind.HELLO) + b"\0\0\0\0", Failure.MALFORMED),
    ],
)
def test_what_is_not_of_the_protocol_ends_that_connection_and_nothing_else(
    daemon: Daemon, sent: bytes, expected: Failure
) -> None:
    folder = daemon.container("a", memory="2g")
    neighbour = Process(folder)
    neighbour.hello()
    process = Process(folder)
    process.socket.sendall(sent)
    assert failure(process.received()).failure == expected
    assert neighbour.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
    wait_until(lambda: "closed" in daemon.log.read_text(), "the cause is logged")


def test_a_second_hello_or_a_row_that_is_not_there(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="2g")
    for message in (m.Hello(1, "again", ""), m.Freed(1), m.Query(9), m.Context(1, 0, 0)):
        process = Process(folder)
        process.hello()
        process.socket.sendall(pack(message, 9))
        assert failure(process.received()).failure == Failure.ORDER


def test_a_flood_without_reading_ends_the_flooder_only(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="2g")
    flooder, neighbour = Process(folder), Process(folder)
    flooder.hello()
    neighbour.hello()
    with pytest.raises(OSError, match=r"reset|pipe"):
        flooder.socket.sendall(pack(m.Query(0), 1) * 2_000_000)
    assert isinstance(neighbour.ask(m.Query(0)), m.Usage)


def test_hundreds_of_connections_that_say_nothing(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="2g")
    silent = [connect(folder) for _ in range(300)]
    process = Process(folder)
    process.hello()
    assert process.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
    for one in silent:
        one.close()


def test_the_page_cannot_be_shrunk_under_the_scheduler(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="2g"))
    process.hello()
    with pytest.raises(PermissionError):
        os.ftruncate(process.descriptor, 0)


def test_processes_come_back_to_a_scheduler_that_was_killed(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        holder = Process(daemon.container("a", memory="10g"))
        [row] = holder.hello().devices
        holder.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
        holder.hold(9 * GIB)
        daemon.kill()
        daemon.start()
        other = Process(daemon.container("b", memory="10g"))
        other.hello()
        request = other.allocate(8 * GIB)  # before the holder is back: nothing may be granted yet
        holder.reconnect(((row.uuid, 9 * GIB),))
        assert holder.ask(m.Query(0)) == m.Usage(10 * GIB, 9 * GIB, 0)
        wait_until(lambda: len(daemon.events("paused")) == 1, "b is paused")
        assert request not in other.answers
        holder.end()
        assert isinstance(other.answer(request), m.Accepted)


def test_a_stopped_scheduler_serves_nobody_with_what_is_still_held(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    waiter = Process(daemon.container("b", memory="10g"))
    holder.hello()
    waiter.hello()
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    waiter.allocate(8 * GIB)
    wait_until(lambda: daemon.state("b")["state"] == "waiting", "b waits")
    assert daemon.stop() == 0
    assert waiter.received() == b""


def test_a_process_that_lost_its_connection_finds_its_memory_again(daemon: Daemon) -> None:
    folder = daemon.container("a", memory="10g")
    one, two = Process(folder), Process(folder)
    [row] = one.hello().devices
    two.hello()
    one.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
    one.cut()
    assert isinstance(two.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc")), m.Rejected)
    one.reconnect(((row.uuid, 8 * GIB),))
    assert one.ask(m.Query(0)) == m.Usage(10 * GIB, 8 * GIB, 0)


def test_a_new_connection_before_the_end_of_the_old_one_takes_its_place(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="10g"))
    [row] = process.hello().devices
    process.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
    old = process.socket.dup()
    process.reconnect(((row.uuid, 9 * GIB),))
    assert process.ask(m.Query(0)) == m.Usage(10 * GIB, 9 * GIB, 0)
    assert old.recv(1) == b""
    old.close()
    assert len(daemon.state("a")["sessions"]) == 1


def test_who_connects_again_and_again_costs_no_descriptors(daemon: Daemon) -> None:
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    process = Process(daemon.container("a", memory="10g"))
    process.hello()
    wait_until(lambda: daemon.state("a")["sessions"] != [], "it has a session")
    before = len(list(descriptors.iterdir()))
    for _ in range(10):
        process.reconnect(())
    assert daemon.state("a")["sessions"] != []  # has been served
    # A checkpoint of the database opens its files for a moment.
    wait_until(lambda: len(list(descriptors.iterdir())) <= before + 1, "no descriptor is left over")


def test_a_process_that_does_not_come_back_gives_its_memory_back_when_it_dies(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="10g"))
    process.hello()
    process.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
    process.cut()
    assert daemon.state("a")["devices"][0]["usage"] == 9 * GIB
    process.end()
    wait_until(lambda: daemon.state("a")["sessions"] == [], "its session ends")
    [returned] = daemon.events("returned")
    assert (returned["pid"], returned["program"], returned["size"]) == (process.pid, "test", 9 * GIB)


def test_memory_of_a_process_without_a_past_here_is_believed_as_far_as_the_driver_says_it(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="10g"))
    [row] = holder.hello().devices
    holder.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc"))
    liar = Process(daemon.container("b", memory="16g"))
    liar.hello(held=((row.uuid, 16 * GIB),))
    assert liar.ask(m.Query(0)) == m.Usage(16 * GIB, 0, 0)
    [device] = daemon.admin.request("devices")["devices"]
    assert device["granted"] <= device["capacity"]


def test_held_memory_beyond_the_limit_is_not_believed_after_a_restart_either(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        liar = Process(daemon.container("b", memory="2g"))
        [row] = liar.hello().devices
        liar.hold(3 * GIB)
        daemon.kill()
        daemon.start()
        liar.reconnect(((row.uuid, 1 << 62),))
        assert liar.ask(m.Query(0)) == m.Usage(2 * GIB, 2 * GIB, 0)


def test_after_a_restart_no_more_is_believed_than_the_driver_counts(tmp_path: Path) -> None:
    """Two that claimed 15 of 16 GiB each were believed, and everybody else stood still as long as they lived."""
    with running_daemon(tmp_path / "d") as daemon:
        liars = [Process(daemon.container(name, memory="15g")) for name in ("a", "b")]
        honest = Process(daemon.container("c", memory="12g"))
        for process in (*liars, honest):
            [row] = process.hello().devices
        honest.ask(m.Allocate(0, 9 * GIB, "cuMemAlloc"))
        honest.hold(9 * GIB)
        daemon.kill()
        daemon.start()
        for liar in liars:
            liar.reconnect(((row.uuid, 15 * GIB),))
            assert liar.ask(m.Query(0)) == m.Usage(15 * GIB, 0, 0)
        honest.reconnect(((row.uuid, 9 * GIB),))
        assert honest.ask(m.Allocate(0, GIB, "cuMemAlloc")) == m.Accepted(GIB, 0)
        [device] = daemon.admin.request("devices")["devices"]
        assert (device["granted"] >= 10 * GIB, device["granted"] <= device["capacity"]) == (True, True)


def test_who_comes_back_after_the_recovery_is_believed_as_far_as_the_driver_says_it(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        late = Process(daemon.container("a", memory="15g"))
        [row] = late.hello().devices
        late.hold(GIB)
        held = late.ask(m.Query(0))
        daemon.kill()
        daemon.start()
        wait_until(lambda: "does not reconnect" in daemon.log.read_text(), "its time is over")
        adopted = daemon.state("a")["devices"][0]["usage"]
        late.reconnect(((row.uuid, 15 * GIB),))
        assert held == m.Usage(15 * GIB, 0, 0)
        assert GIB <= adopted < 2 * GIB
        assert late.ask(m.Query(0)) == m.Usage(15 * GIB, adopted, 0)


def test_a_connection_to_a_volume_that_was_removed_gets_an_answer(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="2g"))
    daemon.admin.request("unmount", name="a", id="1")
    daemon.admin.request("remove", name="a")
    assert process.received() == b""
    assert "Traceback" not in daemon.log.read_text()


def test_more_open_requests_than_a_process_can_have_threads_end_its_connection(daemon: Daemon) -> None:
    holder = Process(daemon.container("a", memory="16g"))
    holder.hello()
    holder.ask(m.Allocate(0, 16 * GIB, "cuMemAlloc"))
    flooder = Process(daemon.container("b", memory="1g"))
    flooder.hello()
    with contextlib.suppress(OSError):
        flooder.socket.sendall(b"".join(pack(m.Allocate(0, 1 << 20, "x"), n + 1) for n in range(1100)))
    wait_until(lambda: "1024 requests of one process wait" in daemon.log.read_text(), "it is refused")
    assert isinstance(holder.ask(m.Query(0)), m.Usage)


def test_a_size_of_contexts_that_a_process_teaches_stays_within_everybodys_limit(daemon: Daemon) -> None:
    process = Process(daemon.container("a", memory="256m"))
    [row] = process.hello().devices
    assert row.context_size == row.limit == 256 << 20
