"""What there is no room for, or no copy of, is charged nonetheless."""

import asyncio
import os
import select
from collections.abc import Callable

import pytest
from exporting_host import GIB, Check, Host

from convgpu.core import events as e
from convgpu.daemon.sessions.exports import MOST_INSTANCES, Exports
from convgpu.daemon.system.processes.epoll_entries import has_entry
from convgpu.protocol.inspection.messages import EXPECTED, Exported


def test_an_instance_that_the_process_closed_or_exchanged_counts_as_open(on_host: Callable[[Check], None]) -> None:
    """Of whom lives on; whoever was killed meanwhile may have exported nothing."""

    async def check(host: Host) -> None:
        session = host.session("a", 2 * GIB)
        number, _kept = host.export()
        for instance in (number, 1 << 20, 0):
            await host.tell(session, instance, GIB // 2, number, instance)
        host.end(session, 2 * GIB)
        assert await host.charged() == [1.5, 0]
        session = host.session("b", GIB)
        told = Exported(7, GIB, 0, 1 << 20, number, 1)
        assert not host.outliving.note(session, told)
        copying = asyncio.create_task(host.outliving.copy(session, told))
        await asyncio.sleep(0)
        host.end(session, GIB)
        await copying
        assert await host.charged() == [1.5, 0]
        host.driver.dispatch(e.ContainerRemoved("a"))
        assert await host.charged() == [0, 0]

    on_host(check)


def test_what_counts_as_open_does_so_while_memory_has_no_process(on_host: Callable[[Check], None]) -> None:
    """A program that hands another one's socket on has no such instance, and what that one exported may be gone."""

    async def check(host: Host) -> None:
        session = host.session("a", 3 * GIB)
        number, kept = host.export()
        await host.tell(session, 7, GIB, number)
        await host.tell(session, 8, GIB, number, 1 << 20)
        host.end(session, 3 * GIB)
        assert await host.charged() == [2, 0]
        for left in (2, 2, 1):
            host.outliving.see_none("another")
            host.outliving.see_none("gpu")
            assert await host.charged() == [left, 0]
        os.close(kept)
        assert await host.charged() == [0, 0]

    on_host(check)


def test_who_makes_many_instances_is_charged_with_all(on_host: Callable[[Check], None]) -> None:
    """Programs that close all descriptors make the hook have another one."""

    async def check(host: Host) -> None:
        session, kept = host.session("a", 3 * GIB), []
        for name in range(12):
            host.instance = select.epoll()
            number, descriptor = host.export()
            kept.append(descriptor)
            told = Exported(name, GIB // 4, 0, host.instance.fileno(), number, name)
            if not host.outliving.note(session, told):
                await host.outliving.copy(session, told)
            host.instance.close()
        copies = host.outliving._living[session.number].copies
        assert len(copies) == MOST_INSTANCES + 1
        host.end(session, 3 * GIB)
        assert await host.charged() == [3, 0]
        for descriptor in kept:
            os.close(descriptor)
        assert await host.charged() == [1, 0]  # of which nobody can tell

    on_host(check)


@pytest.mark.parametrize(("bound", "value", "left"), [("_MOST_NAMES", 2, 1), ("_MOST_ENTRIES", 2, 0)])
def test_what_there_is_no_room_for_is_known_by_its_number(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, bound: str, value: int, left: int
) -> None:
    """Of the names that are one too many, too, there are only so many; the rest counts as open."""
    monkeypatch.setattr(f"convgpu.daemon.sessions.exports.{bound}", value)

    async def check(host: Host) -> None:
        session, kept = host.session("a", 4 * GIB), []
        for name in range(5):
            number, descriptor = host.export()
            kept.append(descriptor)
            await host.tell(session, name, GIB // 2, number)
        host.outliving.note(session, Exported(4, 0, 0, 0, 0, 0))  # it says that it is closed, which nobody can tell
        host.end(session, 4 * GIB)
        assert await host.charged() == [2.5, 0]
        for descriptor in kept:
            os.close(descriptor)
        assert await host.charged() == [left / 2, 0]

    on_host(check)


def test_a_container_with_many_copies_is_charged_with_the_rest(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("convgpu.daemon.sessions.outliving._MOST_COPIES", 1)

    async def check(host: Host) -> None:
        for number in range(2):
            session = host.session("a", GIB)
            exported, kept = host.export()
            await host.tell(session, number, GIB, exported)
            host.end(session, GIB)
            os.close(kept)
        assert await host.charged() == [1, 0]
        assert "counts as open while memory of the device has no process: a has 1 copies" in caplog.text

    on_host(check)


def test_what_was_about_to_be_exported_counts_until_nobody_can_have_it(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than there can be at one time, nobody is told again that they are noted."""
    monkeypatch.setattr("convgpu.daemon.sessions.exports._MOST_EXPECTED", 2)

    async def check(host: Host) -> None:
        session = host.session("a", 4 * GIB)
        exported, kept = host.export()
        await host.tell(session, 7, GIB, exported)
        for name in range(4):
            assert host.outliving.note(session, Exported(name, GIB // 2, 0, EXPECTED, 0, 0))
        for name in (0, 2, 3):
            assert host.outliving.note(session, Exported(name, 0, 0, 0, 0, 0))
        host.end(session, 4 * GIB)
        assert await host.charged() == [2.5, 0]
        host.outliving.see_none("another")
        assert await host.charged() == [2.5, 0]
        for left in (2.5, 2.5, 1):  # what is seen first may be of the time before the end
            host.outliving.see_none("gpu")
            assert await host.charged() == [left, 0]
        os.close(kept)
        assert await host.charged() == [0, 0]

    on_host(check)


def test_what_a_container_tells_of_takes_no_more_room_for_many_processes(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand may tell of thousands: what is one too many counts as open, in one row for a device."""
    monkeypatch.setattr("convgpu.daemon.sessions.exports._MOST_OF_A_CONTAINER", 6)

    async def check(host: Host) -> None:
        sessions, size = [host.session("a", GIB) for _ in range(4)], GIB // 64
        other = host.session("b", GIB)
        for session in sessions:
            for name in range(40):
                host.outliving.note(session, Exported(name, size, 0, EXPECTED, 0, 0))
                host.outliving.note(session, Exported(name, size, 0, 9, name, name % 9))
        living = host.outliving._living
        assert living[sessions[0].number].room.entries <= 6 + 2 * len(sessions)
        host.outliving.note(other, Exported(1, GIB, 0, 9, 1, 1))
        assert living[other.number].room.entries == 1
        assert all(living[session.number].told()["gpu"] >= 40 * size for session in sessions)
        for session in sessions:
            host.end(session, GIB)
        assert await host.charged() == [4, 0]
        host.driver.dispatch(e.ContainerRemoved("a"))
        host.driver.dispatch(e.ContainerCreated("a", {"gpu": 4 * GIB}))
        assert await host.charged() == [0, 0]

    on_host(check)


def test_two_looks_at_once_are_not_in_each_others_way(
    on_host: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its container and one of those that were removed, when that happens between them."""

    async def check(host: Host) -> None:
        exports = Exports("a", most={"gpu": GIB})
        [number, kept] = host.export()
        exports.copies[(1, 1)] = os.dup(host.instance.fileno())
        exports.note(Exported(7, GIB, 0, 1, number, 1), "gpu")

        def has_entry(copy: int, number: int) -> bool:
            is_open = found(copy, number)
            monkeypatch.setattr("convgpu.daemon.sessions.exports.has_entry", found)
            os.close(kept)
            exports.forget_closed(60)
            return is_open

        monkeypatch.setattr("convgpu.daemon.sessions.exports.has_entry", has_entry)
        exports.forget_closed(60)
        assert exports.sizes()["gpu"] == GIB  # it was open when it was looked at
        exports.forget_closed(60)
        assert exports.sizes()["gpu"] == 0
        exports.close()

    found = has_entry
    on_host(check)
