"""Plays jobs on the cluster that `scripts/slurm start` started, and draws who had which GPU when.

Two gangs share GPUs and start whole; a short job overtakes a long gang, which goes on from its checkpoint.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / "scripts/slurm"
TICK = 0.5  # seconds between two samples
HEAD_START = 3.0  # seconds of the long gang before the short job comes
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
        self.times: list[float] = []
        self.samples: dict[tuple[str, int, int, str], set[int]] = defaultdict(set)

    def add(self, now: float, jobs: dict[int, dict], gpus: dict[str, tuple[str, int]], shares: list[dict]) -> None:
        """Add one moment, in seconds."""
        for share in shares:
            for uuid, size in share["cards"].items():
                node, card = gpus[uuid]
                label = f"{jobs[share['job']]['name']}, {size >> 30} GiB"
                self.samples[node, card, share["job"], label].add(len(self.times))
        self.times.append(now)

    def text(self) -> str:
        """Draw it: a line for each job on each GPU, a column for each TICK."""
        columns = int(self.times[-1] / TICK) + 1
        # What a column shows was seen at its end, or by the next sample.
        seen = [next(at for at, time in enumerate(self.times) if time >= column * TICK) for column in range(columns)]
        lines = [f"{'':38}0 s{f'{self.times[-1]:.0f} s':>{max(columns - 3, 5)}}"]
        before = None
        for (node, card, job, label), moments in sorted(self.samples.items()):
            place = f"{node} GPU {card}" if (node, card) != before else ""
            before = node, card
            bar = "".join("█" if at in moments else "·" for at in seen)
            lines.append(f"{place:<9}  {job}: {label:<24}{bar}")
        return "\n".join(lines)


def gpus_by_uuid(settings: dict) -> dict[str, tuple[str, int]]:
    """Return the node of each GPU, and its number there."""
    return {card["uuid"]: (node, at) for node, cards in settings["nodes"].items() for at, card in enumerate(cards)}


def jobs_now(*numbers: int) -> dict[int, dict]:
    """Return jobs, also ended ones, by id."""
    rows = json.loads(run("convgpu", "jobs", "--all", "--json"))["jobs"]
    return {row["job"]: row for row in rows if row["job"] in numbers}


def watch(settings: dict, *numbers: int) -> Timeline:
    """Sample until all jobs have ended, and say what changes."""
    timeline, seen, begin = Timeline(), {}, time.monotonic()
    gpus = gpus_by_uuid(settings)
    while time.monotonic() - begin < MOST:
        jobs = jobs_now(*numbers)
        shares = [json.loads(path.read_text()) for path in sorted(Path(settings["jobs"]).glob("*.json"))]
        now = time.monotonic() - begin
        timeline.add(now, jobs, gpus, [share for share in shares if share["job"] in jobs])
        for number, job in jobs.items():
            known = (job["state"], job["restarts"])
            if seen.get(number) != known:
                seen[number] = known
                again = f", run {job['restarts'] + 1}" if job["restarts"] else ""
                where = f" on {job['nodes']}" if job["nodes"] else ""
                print(
                    f"{time.monotonic() - begin:6.1f} s  {number} {job['name']}: {job['state']}{where}{again}",
                    flush=True,
                )
        ended = [job for job in jobs.values() if job["state"] in {"completed", "failed", "cancelled", "timeout"}]
        if len(ended) == len(numbers):
            return timeline
        time.sleep(max(0.0, now + TICK - (time.monotonic() - begin)))
    sys.exit("the jobs did not end in time")


@contextmanager
def controller(folder: Path) -> Iterator[None]:
    """Run the controller, whose first level is short enough for a demo."""
    words = ("convgpu", "slurm", "controller", "--interval=500ms", "--first-level=15", f"--state={folder}/state")
    print(f"  {' '.join(words[:-1])} &")
    with (folder / "controller.log").open("wb") as log:
        process = subprocess.Popen([SLURM, "run", *words], stdout=log, stderr=log)
    try:
        yield
    finally:
        run("pkill", "-TERM", "-f", f"controller .*--state={folder}/state")
        process.wait()


def play(folder: Path) -> None:
    """Submit, watch, draw, and check what was to be seen."""
    settings = json.loads(run("sh", "-c", 'cat "$(dirname "$SLURM_CONF")/convgpu.json"'))
    print("\nTwo gangs that share GPUs, and a short job for which no GPU has room:\n")
    with controller(folder):
        jobs = submit_all(folder)
        print()
        timeline = watch(settings, *jobs)
    print(f"\n{timeline.text()}\n")
    judge(folder, *jobs)


def submit_all(folder: Path) -> tuple[int, int, int]:
    """Submit the two gangs, and the short job when the long gang runs."""
    long = submit("long gang", 80, folder, "--nodes", "4", "--gpus", "2", "--gpu-memory", "10g")
    other = submit("small gang", 60, folder, "--nodes", "2", "--gpus", "2", "--gpu-memory", "6g")
    log = folder / f"{long}.log"
    while not log.exists() or log.read_text().count("begins") < 4:
        time.sleep(TICK)
    time.sleep(HEAD_START)
    return long, other, submit("short job", 12, folder, "--gpu-memory", "8g")


def judge(folder: Path, long: int, other: int, short: int) -> None:
    """Show what the long gang printed and why it waited; end with an error where something was not as it has to be."""
    log = folder / f"{long}.log"
    lines = [line for line in log.read_text().splitlines() if line.startswith(("run ", "node "))]
    print(f"What job {long} printed:\n  " + "\n  ".join(lines))
    again = [line for line in lines if line.startswith("run 2 ") and not line.endswith("step 0")]
    reason = f"made room for job {short} "
    said = [
        line
        for line in (folder / "controller.log").read_text().splitlines()
        if f"job {long}: " in line and reason in line
    ]
    print(f"What the controller said of it:\n  {reason}{said[0].partition(reason)[2] if said else '?'}")
    if not said or len(again) != 4 or any(job["state"] != "completed" for job in jobs_now(long, other, short).values()):
        sys.exit("demo-cluster: not all jobs completed, or the long gang did not go on from its checkpoint")
    print("The gangs shared GPUs and started whole; the short job overtook; the long one went on from its checkpoint.")


def main() -> None:
    """Play in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="convgpu-demo-") as folder:
        play(Path(folder))


if __name__ == "__main__":
    main()
