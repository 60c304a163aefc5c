"""Two containers compete for one device: the second is paused, and goes on when the first ends."""

import pytest

pytestmark = pytest.mark.engine

GIB = 1 << 30


def events_of(engine, plugin, holder):
    events = engine.administration(plugin, "/v1/events?since=0")["events"]
    return [event["kind"] for event in events if event["container"] == holder.volume]


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_second_goes_on_when_the_first_ends(engine, plugin, hold, end):
    first = hold(plugin, "12g", "10g")
    first.wait_until_holding(10 * GIB)
    second = hold(plugin, "12g", "10g")
    engine.wait_for("the second is paused", lambda: second.state() == "waiting")
    assert second.usage() < 10 * GIB
    assert first.state() == "running"

    if end == "exit":
        first.go_on()
        assert first.exit_code() == 0, first.output()
    else:
        engine("kill", first.id)

    second.wait_until_holding(10 * GIB)
    assert second.state() == "running"
    second.go_on()
    assert second.exit_code() == 0, second.output()
    kinds = events_of(engine, plugin, second)
    assert kinds.index("paused") < kinds.index("granted") < kinds.index("ended")


def test_an_allocation_beyond_the_limit_is_rejected_at_once(engine, plugin, hold):
    holder = hold(plugin, "2g", "3g")
    assert holder.exit_code() == 3, holder.output()
    assert "rejected" in events_of(engine, plugin, holder)


def test_the_limit_may_come_from_the_environment(plugin, hold):
    # An anonymous volume behind --volume-driver carries no options.
    options = ("--volume-driver", plugin, "-v", "/run/convgpu", "-e", "CONVGPU_MEMORY=2g")
    holder = hold(plugin, "", "1g", options=options)
    holder.wait_until_holding(GIB)
    assert [device["limit"] for device in holder.record()["devices"]] == [2 * GIB]
    holder.go_on()
    assert holder.exit_code() == 0, holder.output()
