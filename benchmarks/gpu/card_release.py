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


def moment(process: "subprocess.Popen[str]", word: str) -> float:
    """Wait for the line that begins with `word`; return its moment in milliseconds."""
    assert process.stdout is not None
    for text in process.stdout:
        words = text.split()
        if words[0] == word:
            if words[2:] not in ([], ["0"]):
                raise SystemExit(f"an allocation failed: {text}")
            return float(words[1]) / 1e6
    raise SystemExit(f"{process.args} never said {word}")


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
    """Kill a holder while another waits; return milliseconds after the kill."""
    folders = {name: running.daemon.container(name, memory=f"{(size >> 30) + 4}g") for name in ("holder", "waiter")}
    holder = running.start(folders["holder"], "hold", size)
    moment(holder, "returned")
    waiter = running.start(folders["waiter"], "hold", size)
    wait_until(lambda: running.daemon.state("waiter")["state"] == "waiting", "the waiter waits")
    ask(watcher, size)
    killed = time.monotonic() * 1e3
    holder.kill()
    returned = moment(waiter, "returned")
    freed = moment(watcher, "free")
    holder.wait()
    waiter.communicate("")
    wait_until(lambda: quiet(running), "everything is free again")
    return {"freed": freed - killed, "returned": returned - killed, "after": returned - freed}


def main() -> None:
    """Measure with five sevenths of the card: two of them do not fit."""
    with bench() as running:
        size = running.total * 5 // 7 // GIB * GIB
        watcher = running.start(None, "watch")
        own = statistics.median(own_time(running, watcher, size) for _ in range(3))
        turns = [once(running, watcher, size) for _ in range(TURNS)]
        watcher.communicate("")
    after = [turn["after"] - own for turn in turns]
    figures = [
        Figure("SIGKILL -> the driver has freed it", statistics.median(turn["freed"] for turn in turns), "ms"),
        Figure("SIGKILL -> the waiting call returns", statistics.median(turn["returned"] for turn in turns), "ms"),
        Figure("the driver's own time for the allocation", own, "ms"),
        at_most("freed -> return, less the driver's own, p50", statistics.median(after), "ms", 2),
        Figure("the same, p90", percentile(after, 90), "ms"),
        Figure("the same, most", max(after), "ms"),
    ]
    report("card_release", figures)


if __name__ == "__main__":
    main()
