"""The use of total quotas, as `convgpu authz status` shows it."""

import msgspec
import pytest

from convgpu.authz.quotas import Quotas, QuotaUse
from convgpu.authz.site.rules import parse_rules
from convgpu.protocol.records import Unlimited

GIB = 1 << 30


@pytest.fixture
def read(harness):
    quotas = Quotas(harness.owners, harness.scheduler, harness.engine)

    def answer():
        """Read it as it arrives over HTTP."""
        return msgspec.convert(msgspec.to_builtins(quotas.read(harness.rules)), tuple[QuotaUse, ...])

    return answer


def test_what_users_and_labels_have(harness, start, read):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "5g"\n[labels."team=vision"]\ntotal_quota = "8g"')
    assert start("one", Labels={"team": "vision"}).allow
    assert start("two").allow
    assert start("three", user="carol", Labels={"team": "vision"}).allow
    assert read() == (
        QuotaUse("user", "bob", "GPU-1", 4 * GIB, 0, 5 * GIB),
        QuotaUse("label", "team=vision", "GPU-1", 4 * GIB, 0, 8 * GIB),
    )


def test_the_quota_of_others_is_each_ones_own(harness, start, read):
    harness.rules = parse_rules('[users."*"]\ntotal_quota = "5g"')
    assert start("one").allow
    assert start("two", user="carol").allow
    assert [(use.name, use.running) for use in read()] == [("bob", 2 * GIB), ("carol", 2 * GIB)]


def test_a_container_that_the_engine_started_unasked_counts(harness, start, read):
    """As it does with stopped ones of `--restart always`, when it starts itself."""
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "2g"')
    assert start("one").allow
    harness.now += 60
    harness.scheduler.since["one"] = harness.now  # it has ended
    assert start("two").allow
    harness.scheduler.running |= {"one", "two"}
    assert read() == (QuotaUse("user", "bob", "GPU-1", 4 * GIB, 0, 2 * GIB),)
    harness.scheduler.running -= {"one", "two"}
    harness.scheduler.since["two"] = harness.now + 1
    assert read() == ()


def test_what_was_left_behind_counts(harness, start, read):
    harness.rules = parse_rules('[users.bob]\ntotal_quota = "4g"')
    assert start("one").allow
    harness.scheduler.left = [Unlimited("one", "", GIB, kept="somebody has the descriptor")]
    [use] = read()
    assert (use.running, use.left) == (2 * GIB, GIB)


def test_nobody_is_asked_where_no_quota_is(harness, start, read):
    assert start("one").allow
    asked = harness.scheduler.asked
    assert read() == ()
    assert harness.scheduler.asked == asked
