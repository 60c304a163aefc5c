"""`convgpu slurm controller` over outages of Slurm, and of the disk under its own file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from convgpu.cli.cluster import slurm_client
from convgpu.cli.cluster.controller import Loop
from convgpu.cli.cluster.controller_store import Store
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cluster.controller.controller import Controller
from convgpu.cluster.controller.levels import Levels
from convgpu.cluster.controller.record import JobRecord, KindRecord

GIB = 1 << 30
REQUEUE = "scontrol requeue 1"
REQUEST = "scontrol update jobid=1 trespertask=gres/shard:8"


class Slurm:
    """It lists a job that failed with less than it asked for and one that waits; `told` is what it took.

    Attributes:
        fails: by how a command begins, what it raises, once; after a command that is in `lost` it raises as well.
        meanwhile: by a command, what happens before it is taken.
    """

    def __init__(self) -> None:
        self.rows = {1: "FAILED|100|109|n1", 2: "PENDING|N/A|N/A|"}
        self.told: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.lost: set[str] = set()
        self.meanwhile: dict[str, Callable[[], object]] = {}

    def call(self, *words: str, environment: object = None) -> str:  # noqa: ARG002 - as that of `slurm_client`
        command = " ".join(words)
        if command.startswith("squeue"):
            return "".join(f"{job}|{row}\n" for job, row in self.rows.items())
        if command.startswith("scontrol show node"):
            return f'{{"nodes": [{{"extra": "convgpu-peaks 1={2 * GIB}"}}]}}'
        for begin in [begin for begin in self.fails if command.startswith(begin)]:
            raise self.fails.pop(begin)
        self.meanwhile.get(command, lambda: None)()
        self.told.append(command)
        if words[1] == "requeue":
            self.rows[int(words[2])] = "PENDING|N/A|N/A|"
        if command in self.lost:
            self.lost.remove(command)
            raise Unavailable("Slurm does not answer")
        return ""

    def taken(self) -> list[str]:
        """Return what it was told since the last time."""
        told, self.told = self.told, []
        return told


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Slurm, which the controller asks by its commands."""
    slurm = Slurm()
    monkeypatch.setattr(slurm_client, "call", slurm.call)
    return slurm


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The file, with both jobs as of an earlier turn."""
    store = Store(tmp_path / "state")
    jobs = [JobRecord(job, "alice", "k", 1, requeues=True, asked=8, shards=2, seconds=9.0) for job in (1, 2)]
    store.save(jobs, [], [KindRecord("alice", "k", 1, [], [GIB] * 3)])
    yield store
    store.close()


@pytest.fixture
def writable(store: Store) -> Callable[[bool], object]:
    """Let the file be written, or not; SQLite tells the latter as it tells a full disk."""
    return lambda may: store._connection.execute(f"PRAGMA query_only = {not may}")


def begin(store: Store) -> Loop:
    """Start a controller with what an earlier one saved, as systemd does."""
    return Loop(Controller(Levels((10.0, 40.0, 160.0)), GIB, 16, store.jobs(), store.kinds()), store)


@pytest.fixture
def loop(store: Store) -> Loop:
    """The controller."""
    return begin(store)


def all_of(slurm: Slurm, loop: Loop) -> list[str]:
    """Turn until nothing follows; return what Slurm was told, without reasons."""
    while loop.turn().updates:
        pass
    return [command.partition(" admincomment=")[0] for command in slurm.taken()]


def test_after_an_outage_before_it_a_job_is_queued_again(slurm: Slurm, loop: Loop) -> None:
    slurm.fails[REQUEUE] = Unavailable("Slurm does not answer")
    with pytest.raises(Unavailable):
        loop.turn()
    assert all_of(slurm, loop).count(REQUEUE) == 1
    assert slurm.rows[1].startswith("PENDING")


def test_an_outage_behind_it_repeats_the_size_and_not_that_a_job_is_queued_again(slurm: Slurm, loop: Loop) -> None:
    slurm.fails[REQUEST] = Unavailable("Slurm does not answer")
    with pytest.raises(Unavailable):
        loop.turn()
    assert slurm.taken()[-1] == REQUEUE
    told = all_of(slurm, loop)
    assert told[0] == REQUEST
    assert REQUEUE not in told


def test_a_job_is_queued_again_once_where_slurms_answer_is_lost(slurm: Slurm, loop: Loop) -> None:
    slurm.lost.add(REQUEUE)
    with pytest.raises(Unavailable):
        loop.turn()
    told = slurm.taken() + all_of(slurm, loop)
    assert (told.count(REQUEUE), told.count(REQUEST)) == (1, 1)


def test_priorities_that_an_outage_kept_from_slurm_are_told_after_it(slurm: Slurm, loop: Loop, store: Store) -> None:
    slurm.rows[1] = "PENDING|N/A|N/A|"
    slurm.rows[2] = "RUNNING|100|N/A|n1"
    slurm.fails["scontrol update jobid=2"] = Unavailable("Slurm does not answer")
    with pytest.raises(Unavailable):
        loop.turn()
    assert [command.split()[2] for command in slurm.taken()] == ["jobid=1"]
    assert [job.factor is None for job in store.jobs()] == [False, True]  # the one that Slurm took is saved
    assert [command.split()[2] for command in all_of(slurm, loop)] == ["jobid=2"]


def test_a_size_that_slurm_refuses_is_told_again_and_the_job_not_queued_again(slurm: Slurm, loop: Loop) -> None:
    slurm.fails[REQUEST] = Refused("Job can not be altered now, try later")
    told = all_of(slurm, loop)
    assert (told.count(REQUEUE), told.count(REQUEST)) == (1, 1)


def test_what_slurm_refuses_to_queue_again_is_asked_for_once(slurm: Slurm, loop: Loop, store: Store) -> None:
    slurm.fails[REQUEUE] = Refused("Requested operation is presently disabled")
    told = all_of(slurm, loop) + all_of(slurm, begin(store))
    assert not [command for command in told if "jobid=1" in command or REQUEUE in command]
    assert slurm.rows[1].startswith("FAILED")


def test_where_the_file_cannot_be_written_priorities_are_told_and_no_job_is_queued_again(
    slurm: Slurm, loop: Loop, store: Store, writable: Callable[[bool], object]
) -> None:
    """Killed behind it, a controller would begin with the file of before, and queue the job again at each failure."""
    writable(False)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"readonly database; .* not saved\.\nSee: df /"):
            loop.turn()
    assert [command.split()[2] for command in slurm.taken()] == ["jobid=2"] * 2  # its size, its place
    assert [job.retried for job in store.jobs()] == [False, False]
    writable(True)
    told = all_of(slurm, loop)
    assert (told.count(REQUEUE), told.count(REQUEST)) == (1, 1)
    saved = {job.job: job for job in store.jobs()}
    assert (saved[1].retried, saved[1].shards, saved[2].factor) == (True, 8, 400_000)
    (kind,) = store.kinds()
    assert kind.peaks == [GIB] * 3 + [8 * GIB]


def test_what_could_not_be_saved_is_saved_when_it_can_be(
    slurm: Slurm, loop: Loop, store: Store, writable: Callable[[bool], object]
) -> None:
    slurm.rows = {2: slurm.rows[2]}
    writable(False)
    with pytest.raises(Unavailable, match="readonly database"):
        loop.turn()
    writable(True)
    slurm.rows[2] = "RUNNING|100|N/A|n1"
    loop.turn()
    (job,) = store.jobs()  # the other one is gone since the turn before
    assert (job.job, job.started) == (2, 100.0)


def test_a_controller_that_is_killed_when_a_job_is_queued_again_goes_on_with_its_size(
    slurm: Slurm, loop: Loop, store: Store
) -> None:
    """Or that job would run with less again, and be queued again for its next failure."""
    saved = []
    slurm.meanwhile[REQUEUE] = lambda: saved.append(begin(store))
    slurm.fails[REQUEST] = Unavailable("Slurm does not answer")
    with pytest.raises(Unavailable):
        loop.turn()
    assert slurm.taken()[-1] == REQUEUE
    told = all_of(slurm, *saved)
    assert (told.count(REQUEUE), told.count(REQUEST)) == (0, 1)


@pytest.mark.parametrize(
    "said",
    [
        "Unable to contact slurm controller (connect failure)",
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received for job 1",
    ],
)
def test_slurm_that_goes_while_it_is_asked_refuses_nothing(said: str) -> None:
    with pytest.raises(Unavailable, match="Slurm's controller does not answer"):
        slurm_client.call("sh", "-c", f"echo '{said}' >&2; exit 1")
