"""The controller's decisions, without Slurm: lists of jobs go in, what Slurm is told comes out."""

import pytest

from convgpu.cluster.controller.controller import Controller, Update
from convgpu.cluster.controller.levels import Levels
from convgpu.cluster.controller.record import JobRecord, KindRecord, record_of
from convgpu.cluster.controller.rows import Row, read_rows
from convgpu.cluster.listing import Job, Number
from convgpu.cluster.request import job_comment

GIB = 1 << 30
CARD = 16
DISPLACED = (
    "convgpu: made room for job 2 after 21 s, and goes on when GPUs are free; had 21 s, so jobs that had less go first"
)
LEVELS = Levels((10.0, 40.0, 160.0))


def job(number, *, shards=CARD, cards=1, comment="", command="/train.sh 9", **fields):
    return Job(
        number,
        "train",
        "alice",
        tasks=Number(cards, set=True),
        tres_per_task=f"gres/shard:{shards}",
        job_state=("PENDING",),
        comment=comment,
        command=command,
        **fields,
    )


class Cluster:
    """A controller, and the rows that Slurm would list."""

    def __init__(self, **remembered):
        self.controller = Controller(LEVELS, GIB, CARD, **remembered)
        self.rows = {}

    def submit(self, number, **fields):
        self.rows[number] = Row(number, "pending", None, None, "")
        self.controller.add([job(number, **fields)])

    def set(self, number, state, started=None, ended=None, nodes="n1"):
        self.rows[number] = Row(number, state, started, ended, nodes if started is not None else "")

    def updates(self, now, peaks=()):
        """Return what follows; Slurm takes nothing of it."""
        return self.controller.step([*self.rows.values()], now, dict(peaks)).updates

    def step(self, now, peaks=()):
        """Return the words that follow; Slurm takes them."""
        updates = self.updates(now, peaks)
        self.take(updates)
        return [(update.jobs, *update.words) for update in updates]

    def take(self, updates):
        for update in updates:
            for number in update.jobs:
                self.controller.took(number, update)

    def run(self, number, begin, end, state="completed", peak=None):
        """Let a job run and end."""
        self.set(number, "running", begin)
        self.step(begin)
        self.set(number, state, begin, end)
        return self.step(end, {number: peak} if peak else {})


@pytest.fixture
def cluster():
    return Cluster()


def test_new_jobs_are_told_their_level_together_and_once(cluster):
    cluster.submit(1)
    cluster.submit(2)
    assert cluster.step(0) == [((1, 2), "sitefactor=400000")]
    assert cluster.step(5) == []


def test_a_running_job_falls_level_by_level_and_is_kept_from_its_equals(cluster):
    cluster.submit(1)
    cluster.set(1, "running", 0)
    assert cluster.step(0) == [((1,), "sitefactor=450000")]
    assert cluster.step(9) == []
    assert cluster.step(10) == [((1,), "sitefactor=350000")]
    assert cluster.step(41) == [((1,), "sitefactor=250000")]


def test_service_counts_the_share_of_the_cards_and_at_least_an_eighth(cluster):
    for number, shards, cards in ((1, 8, 2), (2, 1, 1)):
        cluster.submit(number, shards=shards, cards=cards)
        cluster.set(number, "running", 0, nodes=f"n{number}")
    cluster.step(0)
    assert cluster.step(10) == [((1,), "sitefactor=350000")]
    assert cluster.step(79) == [((1,), "sitefactor=250000")]
    assert cluster.step(80) == [((2,), "sitefactor=350000")]


def test_a_displaced_job_says_for_whom_and_keeps_what_it_had(cluster):
    cluster.submit(1)
    cluster.set(1, "running", 0, nodes="n[1-2]")
    cluster.step(0)
    cluster.step(19)
    cluster.submit(2)
    cluster.set(1, "completing")
    assert cluster.step(20) == [((2,), "sitefactor=400000")]
    cluster.set(1, "pending")
    cluster.set(2, "running", 20, nodes="n2")
    assert cluster.step(21) == [
        ((1,), "sitefactor=300000", f"admincomment={DISPLACED}"),
        ((2,), "sitefactor=450000"),
    ]  # fmt: skip
    cluster.set(1, "running", 30, nodes="n[3-4]")
    assert ((1,), "sitefactor=350000", "admincomment=") in cluster.step(30)
    assert cluster.step(50)[-1] == ((1,), "sitefactor=250000")  # 21 s and 20 s


def test_a_displaced_job_says_for_whom_also_when_that_has_ended(cluster):
    cluster.submit(1)
    cluster.set(1, "running", 0, nodes="n[1-2]")
    cluster.step(20)
    cluster.submit(2)
    cluster.set(1, "completing")
    cluster.set(2, "running", 21, nodes="n2")
    cluster.step(22)
    cluster.set(1, "pending")
    cluster.set(2, "completed", 21, 23, nodes="n2")
    assert "made room for job 2 after" in str(cluster.step(24))


def test_a_job_that_waits_much_longer_than_it_ran_is_served_as_a_new_one(cluster):
    cluster.submit(1)
    cluster.set(1, "running", 0)
    cluster.step(11)
    cluster.set(1, "pending")
    assert cluster.step(11)[0][1] == "sitefactor=300000"
    assert cluster.step(11 + 8 * 11 - 1) == []
    assert cluster.step(11 + 8 * 11)[0][1] == "sitefactor=400000"


def test_what_cannot_be_queued_again_is_never_displaced(cluster):
    cluster.submit(1, requeue=False)
    cluster.set(1, "running", 0)
    assert cluster.step(1000) == [((1,), "sitefactor=500000")]


def test_a_known_kind_is_served_by_what_it_is_expected_to_need_until_it_needs_more():
    kind = record_of(job(9)).kind
    cluster = Cluster(kinds=[KindRecord("alice", kind, 1, [50.0, 60.0, 70.0])])
    cluster.submit(1)
    text = "admincomment=convgpu: runs for 60 s, as earlier runs of it did"
    assert cluster.step(0) == [((1,), "sitefactor=200000", text)]
    cluster.set(1, "running", 0)
    assert cluster.step(0) == [((1,), "sitefactor=250000")]
    assert cluster.step(55) == [((1,), "sitefactor=450000")]  # five seconds more
    assert cluster.step(61) == [((1,), "sitefactor=250000")]  # it needs more than it did before: by what it had


def test_kinds_are_learned_from_runs_that_completed(cluster):
    comment = job_comment(["image", "python", "train.py"], auto=False)
    for number in range(1, 4):
        cluster.submit(number, comment=comment)
        cluster.run(number, 0, 20, peak=3 * GIB)
    cluster.submit(4, comment=comment)
    cluster.run(4, 0, 5, state="failed", peak=9 * GIB)
    (kind,) = cluster.controller.kinds.values()
    assert (kind.user, kind.cards, kind.seconds, kind.peaks) == ("alice", 1, [20.0] * 3, [3 * GIB] * 3)
    assert cluster.step(30) == []  # Slurm lists them for a while: nothing is learned twice
    assert kind.seconds == [20.0] * 3


def test_nothing_is_learned_of_scripts_that_slurm_does_not_name(cluster):
    """`sbatch --wrap`: all of them have one name and no command."""
    for number in range(1, 4):
        cluster.submit(number, command="")
        cluster.run(number, 0, 20, peak=3 * GIB)
    assert cluster.controller.kinds == {}


def test_a_waiting_job_asks_for_what_earlier_runs_needed(cluster):
    kind = KindRecord("alice", "/train.sh 9", 1, [], [2 * GIB, 3 * GIB, 2 * GIB])
    cluster = Cluster(kinds=[kind])
    cluster.submit(1, shards=8)
    told = cluster.step(0)
    assert told[0] == ((1,), "trespertask=gres/shard:4")
    assert told[1][2] == "admincomment=convgpu: asks for 4GiB in place of 8GiB, as earlier runs of it needed"
    cluster.submit(2, shards=3)  # never more than its user asked for
    assert [words for _, *words in cluster.step(1)] == [["sitefactor=400000"]]


def test_one_run_suffices_where_the_user_names_no_size():
    comment = job_comment(["image"], auto=True)
    kind = record_of(job(9, comment=comment)).kind
    cluster = Cluster(kinds=[KindRecord("alice", kind, 1, [], [3 * GIB])])
    cluster.submit(1, comment=comment)
    cluster.submit(2, comment=job_comment(["image"], auto=False))
    assert [told for told in cluster.step(0) if "trespertask" in told[1]] == [((1,), "trespertask=gres/shard:4")]


@pytest.fixture
def corrected():
    """A job of a kind that needs less than it asks for."""
    cluster = Cluster(kinds=[KindRecord("alice", "/train.sh 9", 1, [], [GIB] * 3)])
    cluster.submit(1, shards=8)
    return cluster


@pytest.fixture
def failed(corrected):
    """One that failed with less than it asked for, and its peak."""
    corrected.step(0)
    corrected.set(1, "running", 1)
    corrected.step(1)
    corrected.set(1, "failed", 1, 9)
    return corrected


AGAIN = Update((1,), shards=8, requeue=True)


def test_what_slurm_did_not_take_is_decided_again(corrected):
    """An outage may begin between any two updates."""
    updates = corrected.updates(0)
    assert [update.words[0] for update in updates] == ["trespertask=gres/shard:2", "sitefactor=400000"]
    assert corrected.updates(5) == updates
    corrected.take(updates[:1])
    assert corrected.updates(10) == updates[1:]
    corrected.take(updates[1:])
    assert corrected.updates(15) == []


def test_a_correction_that_slurm_refuses_is_not_believed(corrected):
    (update, *_) = corrected.updates(0)
    corrected.controller.may_lack(1, update)
    assert corrected.controller.jobs[1].shards == 8


@pytest.fixture
def displaced(cluster):
    """A job that made room for another one a moment ago, in its first level."""
    cluster.submit(1)
    cluster.set(1, "running", 0)
    cluster.step(5)
    cluster.submit(2)
    cluster.set(1, "pending")
    cluster.step(6)
    cluster.set(2, "running", 7)
    return cluster


def test_a_comment_alone_that_slurm_did_not_take_is_decided_again(displaced):
    """Its job keeps its place, so that nothing else would say it."""
    comment, _ = displaced.updates(8)
    assert (comment.jobs, comment.factor) == ((1,), None)
    assert "made room for job 2" in comment.comment
    assert comment in displaced.updates(9)
    again = Controller(LEVELS, GIB, CARD, jobs=displaced.controller.jobs.values())  # it ended before it told it
    assert comment in again.step([*displaced.rows.values()], 10, {}).updates
    displaced.step(11)
    assert displaced.updates(12) == []


def test_where_slurm_may_have_taken_words_those_of_before_are_told_anew(displaced):
    comment, running = displaced.updates(8)
    displaced.controller.may_lack(1, comment)
    displaced.controller.may_lack(2, running)
    displaced.set(1, "running", 9)
    displaced.set(2, "pending")
    first, second = displaced.updates(9)
    assert first == Update((1,), factor=450000, comment="")
    assert (second.jobs, second.factor) == ((2,), 400000)


def test_a_job_that_failed_with_less_than_it_asked_for_gets_all_of_it(failed):
    cluster = failed
    updates = cluster.updates(9, {1: 2 * GIB})
    assert updates == [AGAIN]
    assert AGAIN.words == ("trespertask=gres/shard:8",)
    cluster.take(updates)
    cluster.set(1, "pending")
    (told,) = cluster.step(10)
    assert told[2] == "admincomment=convgpu: failed with less memory than it asked for, and has all of that now"
    cluster.run(1, 20, 30, state="failed", peak=2 * GIB)
    assert cluster.controller.jobs[1].learned  # once is enough
    cluster.submit(2, shards=8)
    assert not [told for told in cluster.step(40) if "trespertask" in told[1]]  # its next runs ask for all


def test_a_job_is_queued_again_until_slurm_lists_it_so(failed):
    assert failed.updates(9, {1: 2 * GIB}) == [AGAIN]
    assert failed.updates(14, {1: 2 * GIB}) == [AGAIN]
    again = Cluster(jobs=failed.controller.jobs.values(), kinds=failed.controller.kinds.values())
    again.rows = failed.rows
    assert again.updates(19) == [AGAIN]
    (kind,) = again.controller.kinds.values()
    assert kind.peaks == [GIB] * 3 + [8 * GIB]  # learned once


def test_a_job_that_was_queued_again_and_not_told_its_size_is_told_that_alone(failed):
    failed.updates(9, {1: 2 * GIB})
    failed.set(1, "pending")
    updates = failed.updates(10)
    assert updates[0] == Update((1,), shards=8)
    assert "has all of that now" in updates[1].comment
    assert failed.updates(15) == updates
    failed.take(updates)
    assert failed.updates(20) == []


def test_a_job_that_slurm_does_not_queue_again_is_left_until_it_runs_again(failed):
    failed.updates(9, {1: 2 * GIB})
    failed.controller.stays_failed(1)
    assert failed.updates(14, {1: 2 * GIB}) == []
    failed.set(1, "pending")  # its user did
    assert failed.updates(20)[0] == Update((1,), shards=8)


def test_jobs_are_queued_again_after_all_else_is_told(failed):
    failed.submit(2, shards=2)
    assert [update.requeue for update in failed.updates(9, {1: 2 * GIB})] == [False, True]


def test_what_a_job_that_was_queued_again_needed_takes_the_place_of_its_users_size(cluster):
    kind = KindRecord("alice", "/train.sh 9", 1, [], [GIB] * 3)
    cluster = Cluster(kinds=[kind])
    cluster.submit(1, shards=8)
    cluster.step(0)
    cluster.run(1, 1, 9, state="failed", peak=2 * GIB)
    assert kind.peaks == [GIB, GIB, GIB, 8 * GIB]
    cluster.run(1, 20, 30, peak=3 * GIB)
    assert kind.peaks == [GIB, GIB, GIB, 3 * GIB]
    cluster.submit(2, shards=8)
    assert cluster.step(40)[0] == ((2,), "trespertask=gres/shard:4")


def test_the_comment_of_somebody_else_stays(cluster):
    cluster.submit(1, admin_comment="ask Bob")
    cluster.set(1, "running", 0)
    cluster.step(11)
    cluster.set(1, "pending")
    assert cluster.step(12) == [((1,), "sitefactor=300000")]


def test_what_slurm_forgets_is_forgotten(cluster):
    cluster.submit(1)
    cluster.step(0)
    cluster.rows.clear()
    assert cluster.controller.step([], 1, {}).gone == {1}
    assert cluster.controller.unknown([Row(1, "pending", None, None, "")]) == [1]


def test_a_controller_goes_on_with_what_another_remembered(cluster):
    cluster.submit(1)
    cluster.set(1, "running", 0)
    cluster.step(11)
    again = Controller(LEVELS, GIB, CARD, jobs=cluster.controller.jobs.values())
    assert again.step([*cluster.rows.values()], 20, {}).updates == []
    assert again.step([*cluster.rows.values()], 41, {}).updates == [Update((1,), factor=250000)]


def test_few_updates_in_a_jobs_life(cluster):
    """Ten at most, however long it runs: one for each level, its start, and its first place."""
    cluster = Cluster()
    cluster.submit(1)
    told = cluster.step(0)
    cluster.set(1, "running", 1)
    for now in range(1, 1000):
        told += cluster.step(now)
    assert len(told) == 1 + 1 + 3


def test_rows_are_read():
    assert read_rows("12|RUNNING|1795344708|NONE|n[1-2]\n13|PENDING|N/A|N/A|\n") == [
        Row(12, "running", 1795344708.0, None, "n[1-2]"),
        Row(13, "pending", None, None, ""),
    ]
    with pytest.raises(ValueError, match="not enough values"):
        read_rows("slurm_load_jobs error")


def test_a_record_says_what_makes_two_jobs_runs_of_the_same_work():
    same = record_of(job(1, comment=job_comment(["image", "a b"], auto=False)))
    assert same.work == record_of(job(2, comment=job_comment(["image", "a b"], auto=True))).work
    assert same.work != record_of(job(3, comment=job_comment(["image", "a", "b"], auto=False))).work
    assert record_of(job(4, comment="of its user")).kind == "/train.sh 9"
    assert record_of(job(4, command="")).kind == ""
    assert JobRecord(1, "alice", "k", 1, requeues=True, asked=None, shards=None).work.cards == 1
