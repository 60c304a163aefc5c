"""Random submissions of plain Slurm and of ours, every twentieth a gang: is a share ever split, a card overfilled?

Reads what the nodes' Prologs wrote, again and again, until the last job has ended or the time is over.

    random_requests.py [JOBS] [SECONDS]
"""

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from _cluster import CARD, need_cluster, run
from _report import at_least, at_most, report

ENDED = "it ended before its Prolog ran on this node"
QUEUED = 60  # jobs that wait or run at once


class Seen:
    """What the nodes knew of each job, at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shares: dict[int, dict[str, list[int | str]]] = {}
        self.overfull = self.looks = self.late = 0

    def look(self) -> None:
        """Read all files of jobs once."""
        used: Counter[str] = Counter()
        names = {path.name for path in self.folder.glob("*.json")}
        for path in (self.folder / name for name in names):
            try:
                share = json.loads(path.read_text())
            except FileNotFoundError:
                continue  # it has just ended
            if share["fault"].endswith(ENDED):
                self.late += 1
                continue
            used.update(share["cards"])
            shares = sorted(share["cards"].values())
            self.shares.setdefault(share["job"], {})[share["node"]] = shares or [share["fault"]]
        # Files that are read while jobs end and begin are of several moments; only those of one moment are added up.
        if {path.name for path in self.folder.glob("*.json")} == names:
            self.overfull += sum(size > CARD << 30 for size in used.values())
            self.looks += 1


def request(rng: random.Random, number: int) -> tuple[tuple[str, ...], int, int, int]:
    """Return the words of one request, its nodes, tasks on each and GiB; every twentieth is a gang."""
    nodes, tasks = rng.choice([(2, 2), (3, 1), (4, 1), (4, 2)]) if number % 20 == 0 else rng.choice([(1, 1), (1, 2)])
    size = rng.randint(1, CARD)
    share = rng.choice([f"--gres=gpumem:{size}G", f"--gres=shard:{size}", f"--tres-per-task=gres/shard:{size}"])
    words = (f"--nodes={nodes}", f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}", share)
    return words, nodes, tasks, size


def submit_all(count: int, until: float, seen: Seen) -> dict[int, tuple[int, int, int]]:
    """Submit, with a bounded queue; return nodes, tasks and GiB of each job that Slurm took."""
    rng = random.Random(1)  # noqa: S311 - the same each time
    asked: dict[int, tuple[int, int, int]] = {}
    number = 0
    while number < count and time.monotonic() < until:
        batch = []
        for _ in range(min(20, count - number)):
            number += 1
            words, *meaning = request(rng, number)
            batch.append((" ".join(words), meaning))
        lines = "\n".join(
            f"sbatch --parsable -o /dev/null {words} --wrap 'sleep 0.{rng.randint(0, 9)}'" for words, _ in batch
        )
        for job, (_, meaning) in zip(run("sh", "-c", lines).split(), batch, strict=True):
            asked[int(job)] = tuple(meaning)
        while len(run("squeue", "-h", "-o", "%A").split()) > QUEUED and time.monotonic() < until + 120:
            seen.look()
    return asked


def faults(asked: dict[int, tuple[int, int, int]], seen: Seen) -> tuple[int, int, int]:
    """Return how many jobs had a split share; how many gangs were seen whole; how many ended and were never whole."""
    split = whole = half = 0
    states = dict(line.split() for line in run("squeue", "-h", "-t", "all", "-o", "%A %T").splitlines())
    for job, found in seen.shares.items():
        if job not in asked:
            continue
        nodes, tasks, size = asked[job]
        if any(cards != [size << 30] * tasks for cards in found.values()):
            split += 1
            print(f"job {job}: {tasks} tasks of {size} GiB on each of {nodes} nodes had {found}", file=sys.stderr)
        whole += nodes > 1 and len(found) == nodes
    half = sum(states.get(str(job), "") not in {"COMPLETED", ""} for job, (nodes, *_rest) in asked.items() if nodes > 1)
    return split, whole, half


def main() -> None:
    """Submit on the cluster that runs."""
    need_cluster("random-requests")
    count, seconds = (
        (int(word) for word in (*sys.argv[1:], "2000", "1800")[:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 1800)
    )
    settings = json.loads(run("sh", "-c", 'cat "$(dirname "$SLURM_CONF")/convgpu.json"'))
    seen = Seen(Path(settings["jobs"]))
    until = time.monotonic() + seconds
    asked = submit_all(count, until, seen)
    while run("squeue", "-h") and time.monotonic() < until + 120:
        seen.look()
    split, whole, half = faults(asked, seen)
    print(f"{seen.late} looks at nodes whose Prolog ran after the job's end", file=sys.stderr)
    gangs = sum(nodes > 1 for nodes, _, _ in asked.values())
    report(
        "cluster-random-requests",
        [
            at_least("submissions", len(asked), "", count),
            at_least("of them gangs over nodes", gangs, "", count // 20),
            at_least("gangs seen with all their nodes at once", whole, "", 1),
            at_least("times that all cards were added up", seen.looks, "", 1),
            at_most("jobs whose share was split over cards", split, "", 0),
            at_most("cards above their capacity", seen.overfull, "", 0),
            at_most("gangs that did not complete", half, "", 0),
        ],
    )


if __name__ == "__main__":
    main()
