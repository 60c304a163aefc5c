"""From the driver's release of an ended holder's memory to the return of the waiting call.

A watcher without the hook sees when so much memory is free; what the driver itself needs for the allocation is measured
without the hook in the same run and taken off.
"""

import statistics
import subprocess
import time

from _card import GIB, Bench, at_most, bench, report, wait_until
from _report import Figure, percentile

TURNS = 12


def moment(process: "subprocess.Popen[str]", *words: str) -> float | None:
    """Wait for the line that begins with one of the words; return its moment in milliseconds, if it has one."""
    assert process.stdout is not None
    for text in process.stdout:
        line = text.split()
        if line[0] in words:
            if line[2:] not in ([], ["0"]):
                raise SystemExit(f"an allocation failed: {text}")
            return float(line[1]) / 1e6 if line[1:] else None
    raise SystemExit(f"{process.args} never said {words}")


def ask(watcher: "subprocess.Popen[str]", size: int) -> None:
    """Have the watcher look for so much free memory from now on."""
    assert watcher.stdin is not None
    watcher.stdin.write(f"{size}\n")
    watcher.stdin.flush()


def own_time(running: Bench, watcher: "subprocess.Popen[str]", size: int) -> float:
    """Return the milliseconds that the driver alone needs for the allocation."""
    words = running.run(None, "hold", size).split()
    ask(watcher, size)
    moment(watcher, "free")
    return (float(words[3]) - float(words[1])) / 1e6


def quiet(running: Bench) -> bool:
    """Is nobody left, and nothing settling?"""
    [device] = running.daemon.admin.request("devices")["devices"]
    sessions = [running.daemon.state(name)["sessions"] for name in ("holder", "waiter")]
    return not any(sessions) and not device["settling"]


def once(running: Bench, watcher: "subprocess.Popen[str]", size: int) -> dict[str, float]:
    """Kill a holder while another waits; return milliseconds after the kill. `freed` lacks if the watcher missed it."""
    folders = {name: running.daemon.container(name, memory=f"{(size >> 30) + 4}g") for name in ("holder", "waiter")}
    holder = running.start(folders["holder"], "hold", size)
    moment(holder, "returned")
    waiter = running.start(folders["waiter"], "hold", size)
    wait_until(lambda: running.daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    ask(watcher, size)
    killed = time.monotonic() * 1e3
    holder.kill()
    returned = moment(waiter, "returned")
    assert returned is not None
    ask(watcher, 0)
    freed = moment(watcher, "free", "missed")
    moment(watcher, "free")
    holder.wait()
    waiter.communicate("")
    wait_until(lambda: quiet(running), "everything is free again")
    turn = {"returned": returned - killed}
    return turn if freed is None else turn | {"freed": freed - killed, "after": returned - freed}


def main() -> None:
    """Measure with five sevenths of the card: two of them do not fit."""
    with bench(watched=True) as running:
        watcher = running.watcher
        assert watcher is not None
        size = running.total * 5 // 7 // GIB * GIB
        own = statistics.median(own_time(running, watcher, size) for _ in range(3))
        turns = [once(running, watcher, size) for _ in range(TURNS)]
        watcher.communicate("")
    seen = [turn for turn in turns if "freed" in turn]
    after = [turn["after"] - own for turn in seen]
    figures = [
        Figure("SIGKILL -> the driver has freed it", statistics.median(turn["freed"] for turn in seen), "ms"),
        Figure("SIGKILL -> the waiting call returns", statistics.median(turn["returned"] for turn in turns), "ms"),
        Figure("the driver's own time for the allocation", own, "ms"),
        at_most("freed -> return, less the driver's own, p50", statistics.median(after), "ms", 2),
        Figure("the same, p90", percentile(after, 90), "ms"),
        Figure("the same, most", max(after), "ms"),
        Figure("turns in which the watcher saw it", len(seen), f"of {TURNS}"),
    ]
    report("card_release", figures)


if __name__ == "__main__":
    main()
