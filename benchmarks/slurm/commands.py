"""A cluster of four nodes on this machine: what ConvGPU adds to Slurm, each figure measured in turns in one run.

`scripts/slurm start` first; without it nothing is measured.
"""

import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from _cluster import need_cluster, run, state, wait_until
from _report import Figure, at_most, percentile, report

TURNS = 11
CANCELS = 20
OBEDIENT = 'trap "exit 0" TERM; echo runs; while :; do sleep 0.05; done'
# In a job: the seconds of a plain container, and of one by `convgpu job`, in turns.
STARTS = """
now() { date +%s%N; }
for _ in $(seq TURNS); do
    a=$(now); docker run --rm --network host convgpu/demo true; b=$(now); convgpu job convgpu/demo true; c=$(now)
    echo "$((b - a)) $((c - b))"
    docker rm -f -v $(docker ps -aq --filter label=convgpu.job=$SLURM_JOB_ID) >/dev/null  # as at the end of a job
done
"""


# The Prolog of the job once more, where it runs: seconds by the clock, and of the processor.
PROLOGS = """
TIMEFORMAT='prolog %R %U %S'
for _ in $(seq TURNS); do time "$(dirname "$SLURM_CONF")/convgpu/prolog"; done
"""


def seconds(*words: str) -> float:
    """Seconds of one command there."""
    begin = time.perf_counter()
    run(*words)
    return time.perf_counter() - begin


def submits() -> list[Figure]:
    """`sbatch` against `convgpu submit`, held jobs of one size."""
    plain = ("sbatch", "--hold", "--output=/dev/null", "--gres=gpumem:1G", "--wrap", "true")
    ours = ("convgpu", "submit", "--sbatch=--hold", "--output=/dev/null", "--gpu-memory", "1g", "convgpu/demo", "true")
    rows = [(seconds(*plain), seconds(*ours)) for _ in range(TURNS)]
    run("scancel", "--user=root")
    bare, submit = (statistics.median(column) for column in zip(*rows, strict=True))
    return [
        Figure("sbatch, p50", bare * 1e3, "ms"),
        at_most("convgpu submit more than sbatch, p50", (submit - bare) * 1e3, "ms", 150),
    ]


def starts(folder: Path) -> list[Figure]:
    """A plain container against one of `convgpu job`, both inside one job."""
    script = folder / "starts.sh"
    script.write_text(STARTS.replace("TURNS", str(TURNS)))
    log = folder / "starts.log"
    job = run("sbatch", "--parsable", f"--output={log}", "--gres=gpumem:1G", "--wrap", f"bash {script}")
    wait_until(lambda: state(job) in {"COMPLETED", "FAILED"})
    lines = [line.split() for line in log.read_text().splitlines()]
    rows = [(int(line[0]) / 1e9, int(line[1]) / 1e9) for line in lines if len(line) == 2 and line[0].isdecimal()]
    bare, ours = (statistics.median(column) for column in zip(*rows, strict=True))
    return [
        Figure("docker run in a job, p50", bare * 1e3, "ms"),
        at_most("convgpu job more than docker run, p50", (ours - bare) * 1e3, "ms", 300),
    ]


def prologs(folder: Path) -> list[Figure]:
    """The Prolog of a job on its node; by the processor too, because the clock counts others' work on busy cores."""
    script, log = folder / "prologs.sh", folder / "prologs.log"
    script.write_text(PROLOGS.replace("TURNS", str(TURNS)))
    job = run("sbatch", "--parsable", f"--output={log}", "--gres=gpumem:1G", "--wrap", f"bash {script}")
    wait_until(lambda: state(job) in {"COMPLETED", "FAILED"})
    rows = [[float(word) for word in line.split()[1:]] for line in log.read_text().splitlines() if "prolog" in line]
    return [
        at_most("Prolog, p95", percentile([row[0] for row in rows], 95) * 1e3, "ms", 50),
        Figure("Prolog, p50 of the processor", statistics.median(row[1] + row[2] for row in rows) * 1e3, "ms"),
    ]


def cancels(folder: Path) -> list[Figure]:
    """From `scancel` to the end of the container, of a program that obeys SIGTERM."""
    settings = json.loads(run("sh", "-c", 'cat "$(dirname "$SLURM_CONF")/convgpu.json"'))
    docker = ["docker", "-H", settings["engine"]]
    waits = []
    for turn in range(CANCELS):
        log = folder / f"{turn}.log"
        words = ("--gpu-memory", "1g", f"--output={log}", "convgpu/demo", "sh", "-c", OBEDIENT)
        job = str(json.loads(run("convgpu", "submit", "--json", *words))["job"])
        wait_until(lambda log=log: log.exists() and "runs" in log.read_text())  # type: ignore[misc]
        begin = time.perf_counter()
        run("scancel", job)
        running = [*docker, "ps", "-q", f"--filter=label=convgpu.job={job}"]
        wait_until(lambda running=running: not subprocess.check_output(running))  # type: ignore[misc]
        waits.append(time.perf_counter() - begin)
        wait_until(lambda job=job: state(job) == "CANCELLED")  # type: ignore[misc]
    left = subprocess.check_output([*docker, "ps", "-aq"], text=True).split()
    return [
        Figure("scancel until the container is gone, p50", statistics.median(waits), "s"),
        at_most("scancel until the container is gone, p95", percentile(waits, 95), "s", 2),
        at_most("containers left", len(left), "", 0),
    ]


def main() -> None:
    """Measure on the cluster that runs."""
    need_cluster("cluster")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("cluster", [*submits(), *starts(folder), *prologs(folder), *cancels(folder)])


if __name__ == "__main__":
    main()
