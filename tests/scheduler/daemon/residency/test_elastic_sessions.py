"""What elastic processes say, as events of the machine; the machine, the registry and the connection are stand-ins."""

import os
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.core.residency import events as r
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.residency.host_pool import IN_FLIGHT, HostPool
from convgpu.protocol.residency import messages as m
from convgpu.protocol.residency import porter as p
from convgpu.protocol.uuids import uuid_text
from convgpu.protocol.wire import Mover, Outcome

RAW = bytes(range(16))
UUID = uuid_text(RAW)
PIECE = 64 << 20
MORE = 2 << 20  # a unit, by rounding


class World:
    """One elastic process, and the events that came of what it and the porter said."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.sent: list[object] = []
        connection = SimpleNamespace(send=lambda message, _id: self.sent.append(message))
        self.session: Any = SimpleNamespace(
            number=1, container="a", rows=[UUID], is_elastic=True, connection=connection, process=None
        )
        self.now = 0.0
        self.out = 0
        self.limits = {UUID: SimpleNamespace(limit=PIECE)}
        machine = SimpleNamespace(accounts=lambda _name: self.limits, on_host=lambda _number, _device: (self.out, 0))
        driver = SimpleNamespace(dispatch=self.events.append, machine=machine)
        registry = SimpleNamespace(by_number={1: self.session})
        pool = HostPool(64 * PIECE, {UUID: 64 * PIECE}, 1.0)
        self.sessions = ElasticSessions(cast("Any", driver), cast("Any", registry), pool, lambda: self.now)
        self.say(m.Able(Mover.VMM))

    def say(self, message: m.ResidencyMessage) -> list[object]:
        """Return the events of a message of the process."""
        self.events.clear()
        assert self.sessions.receive(self.session, message)
        return list(self.events)

    def copied(self, size: int) -> None:
        self.sessions.report(p.Moved(1, 0, size, inwards=False, nanoseconds=0))


def state(epoch: int, out: int) -> m.State:
    return m.State(epoch, 0, (m.StateRow(RAW, 0, 0, out),))


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_copied_since_the_process_had_its_carrier_is_not_in_its_first_state(world: World) -> None:
    """The porter may be heard before the process, whose state was said before."""
    world.copied(PIECE)
    assert world.say(state(1, 0)) == [r.SessionState(1, 1, open=False, out={UUID: 0}, fixed={UUID: 0})]
    assert world.say(m.Evicted(1, 0, PIECE)) == [r.Evicted(1, UUID, PIECE, 0)]


def test_a_later_state_counts_anew(world: World) -> None:
    world.say(state(1, 0))
    world.copied(PIECE)
    assert world.say(state(1, PIECE)) == [r.SessionState(1, 1, open=False, out={UUID: PIECE}, fixed={UUID: 0})]
    assert world.say(m.Evicted(1, 0, PIECE)) == [r.Evicted(1, UUID, 0, 0)]


def test_a_state_before_the_answer_to_a_stop_is_no_news_also_after_an_answer_to_an_earlier_one(world: World) -> None:
    world.say(state(4, 0))
    world.sessions.perform(r.Stop(1, 5, 2.0))
    world.sessions.perform(r.Stop(1, 6, 2.0))
    assert world.say(state(5, 0)) != []
    assert len(world.say(m.Stopped(5, Outcome.DRAINED))) == 1
    assert world.say(state(6, 0)) == []
    assert len(world.say(m.Stopped(6, Outcome.DRAINED))) == 1


def test_the_end_of_an_order_that_an_earlier_scheduler_gave_is_not_the_end_of_ours(world: World) -> None:
    """The process has begun ours when it is heard, so that the porter has copied more than it says: all counts."""
    world.say(state(4, 0))
    world.sessions.perform(r.Evict(1, 10, UUID, 3 * PIECE))
    for _piece in range(3):
        world.copied(PIECE)
    assert world.say(m.Evicted(4, 0, 2 * PIECE, 1)) == [r.Evicted(1, UUID, 2 * PIECE, 0)]
    assert world.say(m.Evicted(10, 0, PIECE, 1)) == [r.Evicted(1, UUID, PIECE, 0)]


def test_a_drain_lasts_no_longer_than_its_stop_is_ago(world: World) -> None:
    """What a process says it took would make the quanta of all on its devices the longest there are."""
    world.say(state(4, 0))
    world.now = 100.0
    world.sessions.perform(r.Stop(1, 5, 2.0))
    world.now = 100.5
    [event] = world.say(m.Stopped(5, Outcome.DRAINED, 0, (1 << 64) - 1))
    assert event == r.SessionStopped(1, 5, r.StopOutcome.DRAINED, 0, 0.5, {UUID: 0})


def test_the_host_has_its_memory_back_when_the_porter_knows_of_an_end_before_the_session_ends(world: World) -> None:
    """Nobody asked for it again, and it stayed pinned until the next process came whose memory may leave."""
    sizes: list[int] = []
    world.sessions.use(cast("Any", SimpleNamespace(resize=sizes.append, rest=lambda _is_used: None)))
    with subprocess.Popen(["true"], stdout=subprocess.DEVNULL) as child:
        world.session.process = os.pidfd_open(child.pid)
    world.sessions.report(p.Gone(1, PIECE))
    os.close(world.session.process)
    assert sizes == [0]


def test_a_process_may_put_out_what_it_was_ordered_to_and_nothing_afterwards(world: World) -> None:
    """Of an order a piece more may come at most, because pieces are not halved."""
    said: list[object] = []
    connection = SimpleNamespace(send=lambda message, _id: said.append(message))
    world.session.connection = connection
    porter = SimpleNamespace(allow=lambda _session, most: said.append(most), read=lambda: None)
    world.sessions.use(cast("Any", porter))
    world.out = 4 * PIECE
    world.sessions.perform(r.Evict(1, 5, UUID, 2 * PIECE))
    world.sessions.perform(r.Evict(1, 5, UUID, PIECE))
    assert said == [7 * PIECE, m.Evict(5, 0, 2 * PIECE), 9 * PIECE, m.Evict(5, 0, PIECE)]
    said.clear()
    for _piece in range(3):
        world.copied(PIECE)
    world.out = 6 * PIECE
    world.say(m.Evicted(5, 0, 2 * PIECE, 1))
    assert said == [8 * PIECE]
    world.out = 7 * PIECE
    world.say(m.Evicted(5, 0, PIECE, 1))
    assert said == [8 * PIECE, 0]


def test_a_new_porter_hears_what_a_process_was_ordered_to_put_out(world: World) -> None:
    allowed: list[int] = []

    def bring(_session: object, most: int) -> None:
        allowed.append(most)

    porter = SimpleNamespace(allow=lambda *_: None, bring=bring)
    world.sessions.use(cast("Any", porter))
    world.sessions.perform(r.Evict(1, 5, UUID, 2 * PIECE))
    world.copied(PIECE)  # which its process may not have heard
    world.sessions.report(p.Broken(1))
    assert allowed == [3 * PIECE]


def test_no_more_host_memory_is_taken_than_those_that_are_there_may_put_out(world: World) -> None:
    """A process of 600 MB had as much pinned as all devices have, although nothing is promised beyond these."""
    sizes: list[int] = []
    porter = SimpleNamespace(resize=sizes.append, bring=lambda _session, _most: None, runs=True)
    world.sessions.use(cast("Any", porter))
    world.say(m.Able(Mover.VMM))
    world.limits[UUID].limit = 3 * PIECE
    world.sessions.perform(r.Stop(1, 5, 2.0))
    world.sessions.perform(r.Stop(1, 6, 2.0))
    world.limits[UUID].limit = 1 << 40
    world.sessions.perform(r.Stop(1, 7, 2.0))
    assert sizes == [IN_FLIGHT + PIECE + MORE, IN_FLIGHT + 3 * PIECE + MORE, 64 * PIECE]
