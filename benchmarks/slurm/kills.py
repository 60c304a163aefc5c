"""Random kills of every daemon under load: no container without a job, no job without its container, nothing left.

Only descendants of the cluster that `scripts/slurm start` started are killed, and the scheduler in its plugin.

    kills.py [KILLS] [SECONDS]
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from _cluster import need_cluster, run, wait_until
from _report import Figure, at_least, at_most, report

FOLDER = Path(os.environ.get("CONVGPU_CLUSTER", "/tmp/convgpu-cluster"))  # noqa: S108 - as scripts/slurm
JOBS = 4  # that run or wait
QUIET = 20  # kills between two looks at what is left
JOB = "convgpu job convgpu/demo sh -c 'trap \"exit 0\" TERM; for i in $(seq SECONDS); do sleep 1; done'"
SCHEDULER = "convgpud"  # the plugin starts it again
STARTING = 10  # seconds
PATIENCE = 120  # seconds in which what is left has to go
# What is killed, by a part of its command line, and what starts it again.
DAEMONS = {
    "slurmctld": ("slurmctld", ("slurmctld",)),
    **{f"slurmd {node}": (f"-N {node}", ("slurmd", "-N", node)) for node in ("n1", "n2", "n3", "n4")},
    # slurmctld begins only when it answers.
    "slurmdbd": ("slurmdbd", ("sh", "-c", 'MYSQL_UNIX_PORT="${SLURM_CONF%/*/*}/mariadb.socket" slurmdbd')),
    "slurmstepd": ("slurmstepd: [", ()),
    "docker, a job's client": ("docker --host", ()),
    SCHEDULER: ("", ()),
}


def descendants(root: int) -> dict[int, str]:
    """Return the command lines of all processes below one, by their id."""
    parents: dict[int, list[int]] = {}
    lines: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(path.name)] = (
                (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            )
        except OSError:
            continue  # it has just ended
        parents.setdefault(parent, []).append(int(path.name))
    found: dict[int, str] = {}
    todo = [root]
    while todo:
        children = parents.get(todo.pop(), [])
        found |= {child: lines[child] for child in children}
        todo += children
    return found


def scheduler(engine: str) -> list[int]:
    """Return the process of the scheduler in the Engine's plugin."""
    command = ["docker", "-H", engine, "plugin", "inspect", "--format={{.Id}}", "convgpu"]
    plugin = subprocess.check_output(command, text=True).strip()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            words = (path / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", b"convgpu.daemon"] and plugin in (path / "cgroup").read_text():
                found.append(int(path.name))
    return found


class Storm:
    """Jobs come, daemons are killed, and in between it is looked at what is left."""

    def __init__(self) -> None:
        self.rng = random.Random(1)  # noqa: S311 - the same each time
        self.root = int((FOLDER / "pid").read_text())
        self.killed: Counter[str] = Counter()
        self.settings = json.loads(run("sh", "-c", 'cat "$(dirname "$SLURM_CONF")/convgpu.json"'))
        self.orphans = self.submitted = self.judged = 0
        self.longest = 0.0

    def jobs(self) -> dict[int, str]:
        """Return the states of the jobs that Slurm has; asks until it answers."""
        while True:
            done = subprocess.run(
                ["scripts/slurm", "run", "squeue", "-h", "-o", "%A %T"], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return {int(job): state for job, state in (line.split() for line in done.stdout.splitlines())}
            time.sleep(0.2)

    def containers(self) -> list[int]:
        """Return the jobs of the containers that the Engine has, running or not."""
        words = ["docker", "-H", self.settings["engine"], "ps", "-a", "--format", '{{.Label "convgpu.job"}}']
        return [int(job) for job in subprocess.check_output(words, text=True).split() if job.isdecimal()]

    def feed(self) -> None:
        """Keep some jobs in the queue."""
        for _ in range(JOBS - len(self.jobs())):
            script = JOB.replace("SECONDS", str(self.rng.randint(1, 20)))
            words = (
                "sbatch",
                "--requeue",
                "-o",
                "/dev/null",
                f"--gres=gpumem:{self.rng.randint(1, 8)}G",
                "--wrap",
                script,
            )
            done = subprocess.run(["scripts/slurm", "run", *words], capture_output=True, check=False)
            self.submitted += done.returncode == 0

    def wait_for_work(self) -> None:
        """Wait until a container runs, at most STARTING seconds: faster kills would hit idle nodes."""
        with suppress(SystemExit):
            running = ["docker", "-H", self.settings["engine"], "ps", "-q"]
            wait_until(lambda: bool(subprocess.check_output(running)), STARTING, 0.2)

    def kill(self) -> None:
        """Kill one daemon that runs, and start it again."""
        name = self.rng.choice(list(DAEMONS))
        part, start = DAEMONS[name]
        lines = descendants(self.root) if part else {}
        found = [pid for pid, line in lines.items() if part in line and "unshare" not in line and "bash -c" not in line]
        found = found or (scheduler(self.settings["engine"]) if name == SCHEDULER else [])
        if not found:
            return
        try:
            os.kill(self.rng.choice(found), signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed[name] += 1
        if start:
            subprocess.run(["scripts/slurm", "run", *start], capture_output=True, check=False, timeout=60)

    def judge(self) -> None:
        """Wait until each container has a job that Slurm runs; count those that do not get there."""
        self.judged = self.killed.total()
        begin = time.monotonic()
        while lost := sorted(set(self.containers()) - set(self.jobs())):
            if time.monotonic() - begin > PATIENCE:
                print(f"after {self.judged} kills: containers of jobs {lost} are left", file=sys.stderr)
                self.orphans += len(lost)
                break
            time.sleep(1)
        # Slurm drains a node that runs a job whose number it gave anew, because it had forgotten the first.
        words = ("scontrol", "update", "nodename=ALL", "state=resume")
        subprocess.run(["scripts/slurm", "run", *words], capture_output=True, check=False)
        self.longest = max(self.longest, time.monotonic() - begin)

    def end(self) -> int:
        """Cancel all; return what is left a minute later: jobs, containers, files of jobs."""
        run("scancel", "--user=root")
        with suppress(SystemExit):
            wait_until(lambda: not self.jobs() and not self.containers(), 90, 0.5)
        return len(self.jobs()) + len(self.containers()) + len(list(Path(self.settings["jobs"]).glob("*.json")))


def main() -> None:
    """Kill on the cluster that runs."""
    need_cluster("kills")
    kills, seconds = (int(word) for word in [*sys.argv[1:], *("200", "1800")[len(sys.argv) - 1 :]])
    storm = Storm()
    until = time.monotonic() + seconds
    while storm.killed.total() < kills and time.monotonic() < until:
        storm.feed()
        storm.wait_for_work()
        storm.kill()
        if storm.killed.total() - storm.judged >= QUIET:
            storm.judge()
    left = storm.end()
    report(
        "cluster-kills",
        [
            at_least("kills", storm.killed.total(), "", kills),
            *(Figure(f"of {name}", count, "") for name, count in sorted(storm.killed.items())),
            Figure("jobs submitted", storm.submitted, ""),
            at_most("containers without a job, two minutes after the last kill", storm.orphans, "", 0),
            Figure("the longest until there was none", storm.longest, "s"),
            at_most("jobs, containers and files left at the end", left, "", 0),
        ],
    )


if __name__ == "__main__":
    main()
