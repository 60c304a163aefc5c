"""Plays jobs on the cluster that `scripts/slurm start` started, and draws who had which GPU when.

Two gangs share GPUs and start whole; a short job overtakes a long gang, which goes on from its checkpoint.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / "scripts/slurm"
TICK = 0.5  # seconds between two samples
MOST = 150.0  # seconds that the jobs may take together
# It needs STEPS steps of 0.25 s, keeps its place in a file, and obeys SIGTERM by writing it.
TRAIN = """
at=$(cat /c/$CONVGPU_JOB.$PET_NODE_RANK 2>/dev/null || echo 0)
echo "run $((CONVGPU_RESTART + 1)) on node $PET_NODE_RANK begins at step $at"
trap 'echo $at > /c/$CONVGPU_JOB.$PET_NODE_RANK; exit 0' TERM
while [ "$at" -lt "$STEPS" ]; do sleep 0.25; at=$((at + 1)); done
echo "node $PET_NODE_RANK is done"
"""


def run(*words: str) -> str:
    """Run a command on the cluster's login node."""
    return subprocess.check_output([SLURM, "run", *words], text=True)


def submit(name: str, steps: int, folder: Path, *words: str) -> int:
    """Submit a training of so many steps; return the job's id."""
    container = ["-v", f"{folder}:/c", "-e", f"STEPS={steps}", "convgpu/demo", "sh", "-c", TRAIN]
    line = ["convgpu", "submit", "--json", f"--name={name}", f"--output={folder}/%j.log", *words, *container]
    number = int(json.loads(run(*line))["job"])
    print(f"  job {number}  convgpu submit {' '.join(words)} convgpu/demo train.sh   # {name}")
    return number


class Timeline:
    """Who had which GPU when: samples of what the nodes' Prologs wrote."""

    def __init__(self) -> None:
        self.samples: dict[tuple[str, int, int, str], set[int]] = defaultdict(set)
        self.ticks = 0

    def add(self, jobs: dict[int, dict[str, object]], gpus: dict[str, tuple[str, int]], shares: list[dict]) -> None:
        """Add one moment."""
        for share in shares:
            for uuid, size in share["cards"].items():
                node, card = gpus[uuid]
                name = str(jobs[share["job"]]["name"])
                self.samples[node, card, share["job"], f"{name}, {size >> 30} GiB"].add(self.ticks)
        self.ticks += 1

    def text(self) -> str:
        """Draw it: a line for each job on each GPU."""
        lines = [f"{'':38}0 s{'time':>{max(self.ticks - 8, 5)}}  {self.ticks * TICK:.0f} s"]
        before = None
        for (node, card, job, label), ticks in sorted(self.samples.items()):
            place = f"{node} GPU {card}" if (node, card) != before else ""
            before = node, card
            bar = "".join("█" if tick in ticks else "·" for tick in range(self.ticks))
            lines.append(f"{place:<9}  {job}: {label:<24}{bar}")
        return "\n".join(lines)


def gpus_by_uuid(settings: dict) -> dict[str, tuple[str, int]]:
    """Return the node of each GPU, and its number there."""
    return {card["uuid"]: (node, at) for node, cards in settings["nodes"].items() for at, card in enumerate(cards)}


def jobs_now() -> dict[int, dict[str, object]]:
    """Return the jobs, ended ones too, by id."""
    return {row["job"]: row for row in json.loads(run("convgpu", "jobs", "--all", "--json"))["jobs"]}


def watch(settings: dict, expected: int) -> Timeline:
    """Sample until all jobs have ended, and say what changes."""
    timeline, seen, begin = Timeline(), {}, time.monotonic()
    gpus = gpus_by_uuid(settings)
    while time.monotonic() - begin < MOST:
        jobs = jobs_now()
        shares = [json.loads(path.read_text()) for path in sorted(Path(settings["jobs"]).glob("*.json"))]
        timeline.add(jobs, gpus, [share for share in shares if share["job"] in jobs])
        for number, job in jobs.items():
            now = (job["state"], job["restarts"])
            if seen.get(number) != now:
                seen[number] = now
                again = f", run {job['restarts'] + 1}" if job["restarts"] else ""
                where = f" on {job['nodes']}" if job["nodes"] else ""
                print(
                    f"{time.monotonic() - begin:6.1f} s  {number} {job['name']}: {job['state']}{where}{again}",
                    flush=True,
                )
        ended = [job for job in jobs.values() if job["state"] in {"completed", "failed", "cancelled", "timeout"}]
        if len(ended) == expected:
            return timeline
        time.sleep(max(0.0, timeline.ticks * TICK - (time.monotonic() - begin)))
    sys.exit("the jobs did not end in time")


def play(folder: Path) -> None:
    """Submit, watch, draw, and check what was to be seen."""
    settings = json.loads(run("sh", "-c", 'cat "$(dirname "$SLURM_CONF")/convgpu.json"'))
    print("\nTwo gangs that share GPUs, and a short job that needs whole ones:\n")
    long = submit("long gang", 80, folder, "--nodes", "4", "--gpus", "2", "--gpu-memory", "10g")
    other = submit("small gang", 60, folder, "--nodes", "2", "--gpus", "2", "--gpu-memory", "6g")
    while jobs_now()[long]["state"] != "running":
        time.sleep(TICK)
    short = submit("short job", 12, folder, "--partition", "short", "--gpus", "2")
    print()
    timeline = watch(settings, 3)
    print(f"\n{timeline.text()}\n")
    print((folder / f"{long}.log").read_text())
    jobs = jobs_now()
    displaced = [number for number in (long, other) if jobs[number]["restarts"]]
    done = all(jobs[number]["state"] == "completed" for number in (long, other, short))
    if not (done and displaced):
        sys.exit("demo-cluster: not all jobs completed, or none was displaced")
    print(f"The short job overtook; job {displaced[0]} was displaced, and went on from its checkpoint.")


def main() -> None:
    """Play in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="convgpu-demo-") as folder:
        play(Path(folder))


if __name__ == "__main__":
    main()
