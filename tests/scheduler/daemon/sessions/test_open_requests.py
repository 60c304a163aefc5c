"""So many requests of a session and of a container are open at a time; the others begin when those are answered."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from convgpu.daemon.sessions.open_requests import BOUNDS, MAX_QUEUED, Kind, OpenRequests
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.shares import Shares

BOUND = BOUNDS[Kind.ALLOCATION]


def session(number: int, container: str = "a") -> Session:
    return cast("Session", SimpleNamespace(number=number, container=container))


class Requests:
    """Requests that only say that they began."""

    def __init__(self) -> None:
        self.shares = Shares(asyncio.get_running_loop())
        self.open = OpenRequests(self.shares)
        self.begun: list[tuple[int, int]] = []

    def ask(self, one: Session, number: int, kind: Kind = Kind.ALLOCATION) -> bool:
        return self.open.begin(one, kind, partial(self.begun.append, (one.number, number)))

    async def settle(self) -> None:
        for _ in range(3 * BOUND.container):
            await asyncio.sleep(0)


def run(check: Callable[[Requests], Any]) -> None:
    async def main() -> None:
        requests = Requests()
        await check(requests)
        requests.shares.close()

    asyncio.run(main())


def test_what_exceeds_a_sessions_bound_begins_in_order_as_others_are_answered() -> None:
    async def check(requests: Requests) -> None:
        one = session(1)
        for number in range(BOUND.session + 3):
            assert requests.ask(one, number)
        await requests.settle()
        assert requests.begun == [(1, number) for number in range(BOUND.session)]
        assert requests.open.queued(one) == 3
        requests.open.done(one, Kind.ALLOCATION)
        requests.open.done(one, Kind.ALLOCATION)
        await requests.settle()
        assert requests.begun[BOUND.session :] == [(1, BOUND.session), (1, BOUND.session + 1)]

    run(check)


def test_the_processes_of_a_full_container_take_turns() -> None:
    async def check(requests: Requests) -> None:
        full = [session(number) for number in range(BOUND.container // BOUND.session)]
        for one in full:
            for number in range(BOUND.session + 2):
                assert requests.ask(one, number)
        late = session(99)
        assert requests.ask(late, 0)
        assert len(requests.begun) == BOUND.container
        del requests.begun[:]
        for one in full:
            requests.open.done(one, Kind.ALLOCATION)
        await requests.settle()
        assert requests.begun == [(one.number, BOUND.session) for one in full]
        requests.open.done(full[0], Kind.ALLOCATION)
        await requests.settle()
        assert requests.begun[-1] == (99, 0)

    run(check)


def test_another_container_and_another_kind_have_bounds_of_their_own() -> None:
    async def check(requests: Requests) -> None:
        one, other = session(1), session(2, "b")
        for number in range(BOUND.session + 1):
            requests.ask(one, number)
        assert requests.ask(other, 0)
        assert requests.ask(one, 0, Kind.MEASUREMENT)
        assert requests.begun[-2:] == [(2, 0), (1, 0)]

    run(check)


def test_more_than_a_process_can_have_threads_are_refused() -> None:
    async def check(requests: Requests) -> None:
        one = session(1)
        assert all(requests.ask(one, number) for number in range(BOUND.session + MAX_QUEUED))
        assert not requests.ask(one, 0)

    run(check)


def test_the_requests_of_a_session_that_ended_make_room_and_never_begin() -> None:
    async def check(requests: Requests) -> None:
        full = [session(number) for number in range(BOUND.container // BOUND.session)]
        for one in full:
            for number in range(BOUND.session + 1):
                requests.ask(one, number)
        del requests.begun[:]
        requests.open.forget(full[0])
        requests.open.done(full[0], Kind.ALLOCATION)  # an answer to a request of the session that is forgotten
        late = session(99)
        for number in range(BOUND.session + 1):
            requests.ask(late, number)
        await requests.settle()
        assert requests.begun == [(99, number) for number in range(BOUND.session)]

    run(check)


def test_the_last_one_that_waits_may_be_answered_as_it_begins() -> None:
    async def check(requests: Requests) -> None:
        one, failed = session(1), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
        for number in range(BOUND.session):
            assert requests.ask(one, number)
        assert requests.open.begin(one, Kind.ALLOCATION, lambda: requests.open.done(one, Kind.ALLOCATION))
        for _ in range(BOUND.session):
            requests.open.done(one, Kind.ALLOCATION)
        await requests.settle()
        assert failed == []
        assert requests.ask(one, 99)
        assert requests.begun[-1] == (1, 99)

    run(check)
