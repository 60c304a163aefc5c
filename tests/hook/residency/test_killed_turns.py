"""Scheduler and porter are killed while containers take turns that nobody asked for: no byte is lost, all come back."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import build_porter
from daemon import Daemon, running_daemon, wait_until
from hooked_program import Program
from rounds import rounds

from convgpu.client.scheduler import SchedulerUnavailable

MIB = 1 << 20
CARD = 3900 * MIB
SIZE = 1950 * MIB
POOL = 2560 * MIB
BLOCKS = (2 * MIB, 900 * MIB, SIZE - 902 * MIB)  # written at their ends
KILLS = rounds(6, few=1)

Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    build_porter()
    options = ("--oversubscribe=2.0", "--switch-cost=0.5", f"--host-memory={POOL}", f"--libraries={hook}")
    with running_daemon(tmp_path / "d", f"simulated:{CARD >> 20}MiB", *options) as running:
        yield running


class Worker:
    """A program with three blocks, which writes into each of them, compares, and begins anew."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program, self.seed, self.rounds = program, seed, 0
        self.blocks: list[int] = []
        self.wrong = 0
        self._steps = self._work()
        next(self._steps)

    def _work(self) -> Iterator[None]:
        for size in BLOCKS:
            self.program.begin(f"alloc {size}")
            yield from self._until_returned()
            self.blocks.append(self.program.result().number)
        while True:
            self.rounds += 1
            places = [(block, MIB) for block in self.blocks]
            places += [(block + size - MIB, MIB) for block, size in zip(self.blocks, BLOCKS, strict=True)]
            for number, (place, size) in enumerate(places):
                self.program.begin(f"fill {place} {size} {self._value(number)}")
                yield from self._until_returned()
                assert self.program.result().code == 0
            for number, (place, size) in enumerate(places):
                self.program.begin(f"compare {place} {size} {self._value(number)}")
                yield from self._until_returned()
                self.wrong += int(self.program.result().values[0])

    def _value(self, number: int) -> int:
        return (self.seed + 7 * self.rounds + 31 * number) % 251

    def _until_returned(self) -> Iterator[None]:
        while not self.program.returned():
            yield

    def work(self) -> None:
        next(self._steps)


def resumed(daemon: Daemon) -> int:
    """How often containers came back, as far as this scheduler knows."""
    try:
        return len(daemon.events("resumed"))
    except SchedulerUnavailable:
        return 0


def kill(daemon: Daemon, victim: str) -> None:
    if victim == "scheduler":
        daemon.kill()
        daemon.start()
        return
    assert daemon.process is not None
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
    for child in children:
        if "convgpu-porter" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)


def test_kills_amid_turns_lose_nothing(daemon: Daemon, join: Join) -> None:
    chance = random.Random(5)  # noqa: S311 - instants of a test
    folders = [daemon.container(name, memory="2600m", suspend="auto", fixed="700m") for name in "ab"]
    workers = [Worker(join(folder, CONVGPU_NOTICE="never"), 40 * n) for n, folder in enumerate(folders)]
    for number in range(KILLS):
        before = [worker.rounds for worker in workers]
        deadline = time.monotonic() + 600
        while any(worker.rounds < 2 + past for worker, past in zip(workers, before, strict=True)):
            assert time.monotonic() < deadline, f"after {number} kills nobody comes back: {resumed(daemon)}"
            for worker in workers:
                worker.work()
            time.sleep(0.002)
        until = time.monotonic() + chance.uniform(0, 2.5)
        while time.monotonic() < until:
            for worker in workers:
                worker.work()
            time.sleep(0.002)
        kill(daemon, chance.choice(("scheduler", "porter")))
    assert [worker.wrong for worker in workers] == [0, 0]
    for worker in workers:
        worker.program.kill()
    wait_until(lambda: daemon.admin.request("devices")["devices"][0]["out"] == 0, "nothing is on the host")
