"""A cluster of four nodes for all tests of a worker."""

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import pytest
from docker_engine import Engine
from four_nodes import FourNodes, enabled_plugin, running_cluster


class Cluster:
    """The commands of a user on the cluster's login node."""

    def __init__(self, nodes: FourNodes) -> None:
        self.nodes = nodes
        self.wait_for = nodes.wait_for

    def submit(self, *words: str) -> int:
        """Submit a job by `convgpu submit`; return its id."""
        return int(self.nodes("convgpu", "submit", *words).split()[1].rstrip(":"))

    def sbatch(self, *words: str, wrap: str) -> int:
        """Submit a job by plain `sbatch`; return its id."""
        return int(self.nodes("sbatch", "--parsable", "--output=convgpu-%j.log", *words, "--wrap", wrap))

    def job(self, number: int) -> dict[str, object]:
        """Return what `convgpu jobs` says of it."""
        return json.loads(self.nodes("convgpu", "jobs", "--json", str(number)))["jobs"][0]

    def state(self, number: int) -> str:
        """Return Slurm's word in small letters, by the quickest of its commands."""
        return self.nodes("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(number)).lower()

    def wait_until(self, number: int, *states: str) -> None:
        self.wait_for(f"job {number} is {' or '.join(states)}", lambda: self.state(number) in states)

    def wait_until_explained(self, number: int, why: str) -> None:
        """Wait until `convgpu jobs` gives the reason; that takes an interpreter, so Slurm is asked before."""
        reason = ("squeue", "-h", "-o", "%r", "-j", str(number))
        self.wait_for(f"Slurm has a reason for {number}", lambda: self.nodes(*reason) not in ("", "None"))
        self.wait_for(f"job {number} {why}", lambda: self.job(number)["why"] == why)

    def log(self, number: int) -> str:
        path = self.nodes.folder / f"convgpu-{number}.log"
        return path.read_text() if path.exists() else ""

    def wait_until_printed(self, number: int, text: str) -> None:
        self.wait_for(f"job {number} prints {text!r}", lambda: text in self.log(number))

    def result(self, number: int) -> str:
        """Wait until it has completed; return what it printed."""
        self.wait_for(f"job {number} ends", lambda: self.state(number) not in {"pending", "running", "completing"})
        assert self.state(number) == "completed", self.log(number)
        return self.log(number)

    def containers(self, number: int) -> list[str]:
        """Return the names of a job's containers, running or not."""
        return sorted(
            self.nodes.engine("ps", "-a", f"--filter=label=convgpu.job={number}", "--format={{.Names}}").split()
        )

    def shares(self, number: int) -> dict[str, list[tuple[int, int]]]:
        """Return what the nodes know of a job: the cards' numbers in the Engine, and GiB of each, by node."""
        found = {}
        for path in sorted(self.nodes.jobs.glob(f"{number}.*.json")):
            with suppress(FileNotFoundError):  # the job has just ended there
                share = json.loads(path.read_text())
                found[share["node"]] = sorted((self.cards[uuid], size >> 30) for uuid, size in share["cards"].items())
        return found

    @functools.cached_property
    def cards(self) -> dict[str, int]:
        """The cards' numbers in the Engine, by identifier; asked once, because `shares` is polled."""
        devices = self.nodes.engine.administration("convgpu", "/v1/devices")["devices"]
        return {str(device["uuid"]): int(device["index"]) for device in devices}

    def wait_until_gone(self, *jobs: int) -> None:
        """Wait until nothing of the jobs is left on the nodes."""
        self.wait_for(
            f"nothing is left of {jobs}", lambda: not any(self.containers(job) or self.shares(job) for job in jobs)
        )


@pytest.fixture(scope="session")
def cluster(start_engine: Callable[..., AbstractContextManager[Engine]]) -> Iterator[Cluster]:
    with start_engine() as engine, enabled_plugin(engine), running_cluster(engine) as nodes:
        yield Cluster(nodes)


@pytest.fixture(autouse=True)
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    """Each test leaves no job, no container, no volume and no job's file."""
    yield
    cluster.nodes("scancel", "--user=root")
    cluster.wait_for("no job is left", lambda: not cluster.nodes("squeue", "-h"))
    assert cluster.nodes.engine("ps", "-aq") == ""
    assert cluster.nodes.engine("volume", "ls", "-q") == ""
    assert list(cluster.nodes.jobs.glob("*")) == []
