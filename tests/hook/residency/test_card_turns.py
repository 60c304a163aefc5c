"""Containers that together need more than the card take turns on it: real programs, hook, scheduler and porter."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from built import build_porter
from daemon import Daemon, running_daemon, wait_until
from hooked_program import Program

MIB = 1 << 20
CARD = 3900 * MIB
SIZE = 1950 * MIB  # two and their contexts are 1.5 times what is left of the card beside the porter; one fits beside
POOL = 2560 * MIB
BLOCK = 2 * MIB

Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    build_porter()
    options = (
        f"--record={tmp_path}/rec",
        "--oversubscribe=2.0",
        "--switch-cost=0.5",
        f"--host-memory={POOL}",
        f"--libraries={hook}",
    )
    with running_daemon(tmp_path / "d", f"simulated:{CARD >> 20}MiB", *options) as running:
        yield running


@dataclass
class Worker:
    """A program that always has work on the device: it fills a block of its memory again and again."""

    name: str
    program: Program
    address: int = 0
    rounds: int = 0

    def allocate(self, size: int) -> None:
        self.program.begin(f"alloc {size}")

    def allocated(self) -> bool:
        """Whether the allocation has returned; from then on it works."""
        if not self.address and self.program.returned():
            made = self.program.result()
            assert made.code == 0
            self.address = made.number
            self.fill()
        return self.address != 0

    def fill(self) -> None:
        self.rounds += 1
        self.program.begin(f"fill {self.address} {BLOCK} {self.rounds % 251}")

    def work(self) -> None:
        if self.allocated() and self.program.returned():
            assert self.program.result().code == 0
            self.fill()

    def finish(self) -> None:
        """End what is under way, and see that the block has what was written last."""
        assert self.program.result().code == 0
        assert self.program.call(f"compare {self.address} {BLOCK} {self.rounds % 251}").values == ("0",)


def start(daemon: Daemon, join: Join, names: str, memory: str) -> list[Worker]:
    """Start a program in each container, and wait for the host's memory: what it holds is promised only then."""
    folders = {name: daemon.container(name, memory=memory, suspend="auto", fixed="700m") for name in names.split()}
    workers = [Worker(name, join(folder, CONVGPU_NOTICE="never")) for name, folder in folders.items()]
    wait_until(lambda: daemon.admin.request("devices")["devices"][0]["pool"] == POOL, "the host's memory is there", 60)
    return workers


def kinds(daemon: Daemon, name: str) -> list[str]:
    """Return what happened to a container's memory, without repetitions."""
    events = daemon.events("suspended", "evicted", "restored", "resumed", "busy")
    found = [str(event["kind"]) for event in events if event["container"] == name]
    return [kind for place, kind in enumerate(found) if place == 0 or kind != found[place - 1]]


def work_until(condition: Callable[[], bool], what: str, *workers: Worker) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, f"not within 240 s: {what}"
        for _ in range(4):  # it has work all the while, and what became of it is asked for more seldom
            for each in workers:
                each.work()
            time.sleep(0.005)


def test_two_busy_programs_that_need_one_and_a_half_cards_take_turns(daemon, join: Join) -> None:
    a, b = start(daemon, join, "a b", "2600m")
    a.allocate(SIZE)
    work_until(a.allocated, "the first has its memory", a)
    b.allocate(SIZE)
    work_until(b.allocated, "the second has its turn", a, b)
    assert kinds(daemon, "a")[:2] == ["suspended", "evicted"]
    work_until(lambda: "resumed" in kinds(daemon, "a"), "the first is back", a, b)
    a.finish()
    assert a.program.end() == []
    work_until(lambda: "resumed" in kinds(daemon, "b"), "the second is back", b)
    b.finish()
    assert b.program.end() == []
    wait_until(lambda: daemon.admin.request("devices")["devices"][0]["out"] == 0, "nothing is on the host")


def test_an_idle_program_leaves_for_others_and_a_busy_one_runs_on(daemon, join: Join) -> None:
    idle, busy, comer = start(daemon, join, "idle busy comer", "1600m")
    idle.allocate(600 * MIB)
    work_until(idle.allocated, "the first has its memory")
    idle.finish()
    busy.allocate(600 * MIB)
    work_until(busy.allocated, "the second has its memory", busy)
    comer.allocate(900 * MIB)  # not beside three contexts, the porter and what is there
    work_until(comer.allocated, "the third has its memory", busy, comer)
    assert (kinds(daemon, "idle"), kinds(daemon, "busy")) == (["suspended", "evicted"], [])
    idle.fill()
    work_until(lambda: "resumed" in kinds(daemon, "idle"), "the first has its turn again", busy, comer)
    idle.finish()
