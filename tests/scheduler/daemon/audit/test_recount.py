"""What a container is charged with is counted again for who is refused because of it; figures of devices are set."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from audit_parts import GIB, Cards, Parts
from contained_program import TAKE, program, said
from daemon import Process, running_daemon, wait_until

from convgpu.core import events as e
from convgpu.core.audit.attribution import Owner
from convgpu.daemon.audit import recount
from convgpu.daemon.audit.recount import Recount
from convgpu.daemon.sessions.exports import Exports
from convgpu.protocol.messages import Rejected

Check = Callable[["Host"], Awaitable[None]]


class Host:
    """Containers `a` and `b`, each charged with 2 GiB of the first device; nobody has them by now.

    Attributes:
        taken: how many samples were taken; `during` is called in each.
    """

    def __init__(self, directory: Path) -> None:
        self.parts = Parts(Cards(), directory)
        self.taken, self.during = 0, lambda: None
        for name in "ab":
            self.parts.driver.dispatch(e.ContainerCreated(name, {"one": 4 * GIB, "two": 4 * GIB}))
            self.parts.driver.dispatch(e.ContainerStarted(name))
            self.charge(name, 2)
        sample = self.parts.audit.sample

        async def take(devices):  # type: ignore[no-untyped-def]
            self.taken += 1
            self.during()
            return await sample(devices)

        self.recount = Recount(take, self.parts.driver, self.parts.attributor, self.parts.outliving)

    def charge(self, name: str, size: float, device: str = "one") -> None:
        self.parts.driver.dispatch(e.UnleasedMemory(name, device, int(size * GIB)))

    def charged(self, device: str = "one") -> list[float]:
        return [self.parts.driver.machine.charged(name, device) / GIB for name in "ab"]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Check], None]:
    monkeypatch.setattr(recount, "_STEP", 0.01)

    async def body(check: Check) -> None:
        host = Host(tmp_path)
        with closing(host.parts.store):
            await check(host)

    return lambda check: asyncio.run(body(check))


def test_what_is_gone_is_taken_back_of_all_on_that_device(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        host.charge("a", 1, "two")
        await host.recount.count("one")
        assert (host.charged(), host.charged("two")) == ([0, 0], [1, 0])

    play(check)


def test_what_ended_processes_left_stays(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        host.parts.outliving._left["a"].append(Exports("a", charged=Counter({"one": GIB})))
        host.charge("b", 0.5)
        await host.recount.count("one")
        assert host.charged() == [1, 0]

    play(check)


def test_nobody_is_charged_with_more(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        host.parts.outliving._left["a"].append(Exports("a", charged=Counter({"one": 3 * GIB})))
        await host.recount.count("one")
        assert host.charged() == [2, 0]

    play(check)


def test_a_device_that_does_not_answer_changes_nothing(play: Callable[[Check], None]) -> None:
    async def check(host: Host) -> None:
        host.parts.executor._devices.named = False
        await host.recount.count("one")
        assert (host.charged(), host.taken) == ([2, 2], 1)

    play(check)


def test_who_asks_during_a_count_shares_the_next(play: Callable[[Check], None]) -> None:
    """The one that has begun may be past what was freed since."""

    async def check(host: Host) -> None:
        later: list[asyncio.Task[None]] = []

        def ask() -> None:
            if host.taken == 1:
                later.extend(asyncio.ensure_future(host.recount.count("one")) for _ in range(5))

        host.during = ask
        await host.recount.count("one")
        await asyncio.gather(*later)
        assert host.taken == 2

    play(check)


def test_counts_leave_time_for_others(play: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(host: Host) -> None:
        slept: list[float] = []
        sleep = asyncio.sleep

        async def note(seconds: float) -> None:
            slept.append(seconds)
            await sleep(0)

        monkeypatch.setattr(recount.asyncio, "sleep", note)
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        for device in ("one", "one", "two"):
            await host.recount.count(device)
        first, second, other = slept
        assert first <= 0 < second == pytest.approx(0.01)
        assert other <= 0

    play(check)


class Unseen:
    """Searches have found 2 GiB of a dead process of `a`; so much of it is there when it is asked once more."""

    def __init__(self, still: int) -> None:
        self.still = still

    def follow(self, *_: object) -> None:
        pass

    def found(self, _device: str) -> Mapping[Owner, int]:
        return {Owner("a", "id"): 2 * GIB}

    async def confirm(self, _device: str) -> Mapping[Owner, int]:
        return {Owner("a", "id"): self.still}


@pytest.mark.parametrize("still", [0, 1, 2])
def test_what_a_search_found_counts_as_far_as_it_is_there_still(play: Callable[[Check], None], still: int) -> None:
    """Beside 3 GiB that are nobody's: it was claimed from those when it was gone."""

    async def check(host: Host) -> None:
        host.charge("b", 0)
        host.parts.executor._devices.used_bytes["one"] += 3 * GIB
        attributor = host.parts.attributor
        attributor.claims.unseen = Unseen(still * GIB)
        attributor.claims.see_unlisted("one", 3 * GIB, GIB // 2)
        await host.recount.count("one")
        assert host.charged() == [still, 0]
        before = attributor.claims.unseen_on("one")
        [sample], leases = await host.parts.audit.sample({"one"})
        assert attributor.attribute(sample, leases, attributor.index()).unleased == {"a": 2 * GIB}
        assert (before, attributor.claims.unseen_on("one")) == (0, 2 * GIB)

    play(check)


def test_what_waits_is_refused_for_what_is_there(tmp_path: Path, make_cgroup: Callable[[], Path]) -> None:
    """A real scheduler: it is looked at when a program past the hook is charged, and decided on then."""
    cgroup = make_cgroup()
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=100ms", "--overuse=warn") as daemon:
        waiting = daemon.container("a", memory="4g")
        row = {"id": cgroup.name, "name": "a", "state": "running", "volumes": ["a"]}
        daemon.admin.request("listed", asked=0.0, containers=[row], volumes=["a", "b"])
        holder, waiter = Process(daemon.container("b", memory="13g")), Process(waiting)
        holder.hello()
        holder.answer(holder.allocate(13 * GIB))
        waiter.hello()
        request = waiter.allocate(7 * GIB // 2)
        wait_until(lambda: daemon.events("paused"), "it waits")
        source = TAKE + "enter(sys.argv[1])\ntake(1)\nprint(flush=True)\nsignal.pause()\n"
        with program(daemon, source, cgroup, str(cgroup)) as taker:
            assert said(taker) == "\n"
            answer = waiter.answer(request)
            assert isinstance(answer, Rejected)
            assert answer.used > GIB
