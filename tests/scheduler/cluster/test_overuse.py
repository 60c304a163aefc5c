"""What a job's end by overuse is called in Slurm."""

from convgpu.cluster import listing, overuse
from convgpu.protocol.records import Container, Event, Share

GIB = 1 << 30


def container(name):
    share = Share(uuid="GPU-a", limit=2 * GIB, grant=0, usage=0)
    return Container(name=name, mountpoint="", created=0.0, state="ended", devices=(share,))


def overused(name):
    return Event(1, 0.0, "overused", name, uuid="GPU-a", size=3 * GIB)


def stopped(name, reason="overuse"):
    return Event(2, 0.0, "stopped", name, reason=reason)


def test_a_container_that_was_stopped_for_its_use_is_the_reason():
    told = overuse.comment("n1", [container("a")], [overused("b"), overused("a"), stopped("b"), stopped("a")])
    assert told == "convgpu: ended on n1: it held 3GiB of a GPU, more than its 2GiB"


def test_who_took_what_others_have_reserved_is_told_so_though_it_was_above_its_limit_before():
    events = [overused("a"), stopped("b", "taken"), stopped("a", "taken")]
    told = overuse.comment("n1", [container("a")], events)
    assert told == "convgpu: ended on n1: it took, past the hook, what others were granted or have reserved"


def test_nothing_is_said_of_one_that_was_only_warned_or_stopped_otherwise():
    assert overuse.comment("n1", [container("a")], [overused("a"), stopped("b", "taken"), stopped("a", "admin")]) == ""


def test_jobs_get_their_comments_of_the_accounting_and_keep_theirs_without():
    jobs = [listing.Job(1, admin_comment="convgpu: old"), listing.Job(2), listing.Job(3, admin_comment="kept")]
    told = listing.with_comments(jobs, "1|convgpu: new\n2|\n3|\n")
    assert [job.admin_comment for job in told] == ["convgpu: new", "", "kept"]
