"""Memory that several processes use is charged once, to the process that made it."""

from collections.abc import Callable

import pytest
from hooked_program import SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, Session, open_session

Start = Callable[..., Program]


@pytest.fixture
def owner(start: Start, scheduler: ScriptedScheduler) -> Session:
    return open_session(start(), scheduler, headroom=GIB)


@pytest.fixture
def other(start: Start, scheduler: ScriptedScheduler, owner: Session) -> Session:
    assert owner.context != 0
    return open_session(start(), scheduler, headroom=GIB)


def test_memory_of_another_process_is_charged_to_that_one(owner: Session, other: Session) -> None:
    address = owner.program.call("alloc 4194304").number
    handle = owner.program.call(f"ipcget {address}")
    assert handle.code == SUCCESS
    opened = other.program.call(f"ipcopen {handle.values[0]}")
    assert opened.code == SUCCESS
    assert (owner.page.read(0), other.page.read(0)) == (GIB - 4 * MIB, GIB)
    assert other.program.call(f"ipcclose {opened.number}").code == SUCCESS
    assert (owner.page.read(0), other.page.read(0)) == (GIB - 4 * MIB, GIB)
    assert owner.program.call(f"free {address}").code == SUCCESS
    assert (owner.page.read(0), other.page.read(0)) == (GIB, GIB)
    assert other.peer.silent()


def test_own_memory_at_an_address_that_was_opened_before(owner: Session, other: Session) -> None:
    """After closing, the driver may give the same address to an allocation."""
    address = owner.program.call("alloc 4194304").number
    handle = owner.program.call(f"ipcget {address}").values[0]
    for _turn in range(3):
        opened = other.program.call(f"ipcopen {handle}").number
        assert other.program.call(f"ipcclose {opened}").code == SUCCESS
        own = other.program.call("alloc 4194304").number
        assert other.page.read(0) == GIB - 4 * MIB
        assert other.program.call(f"free {own}").code == SUCCESS
        assert other.page.read(0) == GIB
