"""From the driver's release of an ended process's memory to the return of a waiting allocation.

A watcher says when the memory was free. The first allocation after that takes the driver long (270 ms on an H200, even
for 4 GiB), so ConvGPU's share is a difference: against a program that looks at the free memory itself, as fast as it
can, and allocates as soon as there is enough (`card wait`).
"""

import os
import signal
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass

from _card import GIB, Bench, at_most, bench, report, wait_until
from _report import Figure, percentile

TURNS = 12


@dataclass(frozen=True)
class Turn:
    """Milliseconds from the holder's SIGKILL.

    Attributes:
        returned: the waiting allocation.
        refusals: how often the driver refused it before (only without ConvGPU).
        asked: the driver was asked first (only without ConvGPU).
        freed: the watcher saw enough free memory; None if it missed that.
        reaped: the holder's parent had its exit status.
    """

    returned: float
    refusals: int
    asked: float | None
    freed: float | None
    reaped: float


@dataclass(frozen=True)
class Case:
    """`sizes`: what the waiter allocates; the last does not fit while the holder lives."""

    name: str
    held: int
    sizes: tuple[int, ...]


def line_of(process: "subprocess.Popen[str]", *first: str) -> list[str]:
    """Return the words of the next line that begins with one of these."""
    assert process.stdout is not None
    for text in process.stdout:
        if (words := text.split())[0] in first:
            return words
    raise SystemExit(f"{process.args} never said {first}")


def say(process: "subprocess.Popen[str]", text: str) -> None:
    """Write a line on the process's stdin."""
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def milliseconds(words: list[str]) -> float:
    """Return the moment of a line."""
    return float(words[1]) / 1e6


def quiet(running: Bench) -> bool:
    """Does the scheduler know of nobody, and of nothing that settles?"""
    [device] = running.daemon.admin.request("devices")["devices"]
    return not device["used"] and not device["settling"]


def start_waiter(running: Bench, case: Case, *, hooked: bool) -> "subprocess.Popen[str]":
    """Start the waiter and see that it waits."""
    if not hooked:
        waiter = running.start(None, "wait", *case.sizes)
        line_of(waiter, "waiting")
        return waiter
    waiter = running.start(running.containers["waiter"], "hold", *case.sizes)
    wait_until(lambda: running.daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    for _ in case.sizes[:-1]:
        line_of(waiter, "returned")
    line_of(waiter, "asking")
    return waiter


def once(running: Bench, watcher: "subprocess.Popen[str]", case: Case, *, hooked: bool) -> Turn:
    """Kill a holder while another process waits."""
    holder = running.start(running.containers["holder"], "hold", case.held)
    line_of(holder, "holding")
    waiter = start_waiter(running, case, hooked=hooked)
    say(watcher, str(case.sizes[-1]))
    reaped: list[float] = []
    reaper = threading.Thread(target=lambda: (holder.wait(), reaped.append(time.monotonic() * 1e3)))
    reaper.start()
    killed = time.monotonic() * 1e3
    os.kill(holder.pid, signal.SIGKILL)
    asked, answers = None, []
    while not answers or answers[-1][2] != "0":
        words = line_of(waiter, "asking", "returned")
        if words[0] == "returned":
            answers.append(words)
        elif asked is None:
            asked = milliseconds(words) - killed
    say(watcher, "0")
    freed = line_of(watcher, "free", "missed")
    line_of(watcher, "free")
    reaper.join()
    waiter.communicate("")
    wait_until(lambda: quiet(running), "everything is free again")
    say(watcher, str(case.held))  # without the hook it is the driver's word that counts
    line_of(watcher, "free")
    return Turn(
        returned=milliseconds(answers[-1]) - killed,
        refusals=len(answers) - 1,
        asked=asked,
        freed=milliseconds(freed) - killed if freed[1:] else None,
        reaped=reaped[0] - killed,
    )


def measure(running: Bench, watcher: "subprocess.Popen[str]", case: Case) -> list[Figure]:
    """Measure one case, with and without in turns."""
    turns: dict[bool, list[Turn]] = {True: [], False: []}
    for turn in range(TURNS):
        for hooked in (True, False) if turn % 2 else (False, True):
            turns[hooked].append(once(running, watcher, case, hooked=hooked))
    print(case.name, *turns[True], *turns[False], sep="\n", flush=True)
    freed = {hooked: [turn.freed for turn in turns[hooked] if turn.freed is not None] for hooked in turns}
    after = {
        hooked: [turn.returned - turn.freed for turn in turns[hooked] if turn.freed is not None] for hooked in turns
    }
    added = statistics.median(after[True]) - statistics.median(after[False])
    figures = []
    for hooked, words in ((False, "without"), (True, "with")):
        figures += [
            Figure(f"{case.name}, {words}: SIGKILL -> freed", statistics.median(freed[hooked]), "ms"),
            Figure(f"{case.name}, {words}: freed -> returned, p50", statistics.median(after[hooked]), "ms"),
            Figure(f"{case.name}, {words}: freed -> returned, p90", percentile(after[hooked], 90), "ms"),
        ]
    figures.append(Figure(f"{case.name}: turns in which the watcher saw it", sum(map(len, freed.values())), ""))
    return [*figures, at_most(f"{case.name}: freed -> returned, added", added, "ms", 2)]


def main() -> None:
    """Measure with five sevenths of the card held."""
    with bench(watched=True) as running:
        watcher = running.watcher
        assert watcher is not None
        held = running.total * 5 // 7 // GIB * GIB
        running.containers = {
            "holder": running.daemon.container("holder", memory=f"{(held >> 30) + 1}g"),
            "waiter": running.daemon.container("waiter", memory=f"{(held >> 30) + 4}g"),
        }
        rest = (running.total - held) // GIB * GIB
        cases = [
            Case("the last 4 GiB", held, (rest - 4 * GIB, 4 * GIB)),
            Case("all at once", held, (held,)),
        ]
        figures = [figure for case in cases for figure in measure(running, watcher, case)]
        watcher.communicate("")
    report("card_release", figures)


if __name__ == "__main__":
    main()
