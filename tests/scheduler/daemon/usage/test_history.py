"""The samples of the usage: means, bounds, numbers, and clocks that jump."""

import msgspec

from convgpu.daemon.usage.history import MOST_SHARES, Holding, Reading, UsageHistory
from convgpu.protocol.inspection.usage import LENGTH, OTHERS, PAGE, Usage
from convgpu.protocol.records import Telemetry

IDLE = Telemetry(utilization=0, temperature=30, power=70.0)


def reading(*holdings: Holding, telemetry: Telemetry = IDLE) -> dict[str, Reading]:
    return {"GPU-a": Reading(1000, 5, 7, holdings, telemetry)}


def held(name: str, grant: int, usage: int = 0) -> Holding:
    return Holding(name, f"{name}'s name", grant, usage)


def since(history: UsageHistory, step: int, after: int = 0) -> Usage:
    return msgspec.json.decode(msgspec.json.encode(history.since(step, after)), type=Usage)  # type: ignore[arg-type]


def test_each_second_has_one_sample_and_what_came_before_is_left_out() -> None:
    history = UsageHistory()
    for time in (100.0, 100.9, 101.2):
        history.add(time, reading(held("a", 4, 3)))
    answer = since(history, 1)
    assert [sample.time for sample in answer.samples] == [100, 101]
    device = answer.samples[0].devices["GPU-a"]
    assert (device.capacity, device.settling, device.external, device.utilization) == (1000, 5, 7, 0)
    assert [tuple(msgspec.to_builtins(share)) for share in device.shares] == [(0, 4, 3)]
    assert [(one.number, one.volume, one.name) for one in answer.containers] == [(0, "a", "a's name")]
    assert [sample.time for sample in since(history, 1, 100).samples] == [101]


def test_a_step_is_the_mean_of_its_seconds() -> None:
    history = UsageHistory()
    for second in range(120, 133):
        telemetry = Telemetry(utilization=100 if second < 126 else 0, temperature=None, power=second - 120.0)
        history.add(second, reading(*([held("a", 12, 6)] if second < 126 else []), telemetry=telemetry))
    [sample] = since(history, 12).samples
    device = sample.devices["GPU-a"]
    assert (sample.time, device.utilization, device.temperature, device.power) == (120, 50.0, None, 5.5)
    assert [(share.grant, share.usage) for share in device.shares] == [(6, 3)]
    assert since(history, 144).samples == ()


def test_an_answer_has_a_bound_and_says_that_there_is_more() -> None:
    history = UsageHistory()
    for second in range(1, PAGE + 2):
        history.add(second, reading(held("early" if second < 3 else "late", 1)))
    first = since(history, 1)
    assert (len(first.samples), first.more) == (PAGE, True)
    assert [one.volume for one in first.containers] == ["early", "late"]
    rest = since(history, 1, first.samples[-1].time)
    assert (len(rest.samples), rest.more) == (1, False)
    assert [one.volume for one in rest.containers] == ["late"]


def test_only_the_newest_samples_are_kept() -> None:
    history = UsageHistory()
    for second in range(1, LENGTH + 11):
        history.add(second, reading())
    assert since(history, 1).samples[0].time == 11


def test_small_grants_are_one_share() -> None:
    history = UsageHistory()
    history.add(1, reading(*(held(f"c{i}", 100 + i, 1) for i in range(MOST_SHARES + 3))))
    shares = since(history, 1).samples[0].devices["GPU-a"].shares
    assert len(shares) == MOST_SHARES + 1
    assert (shares[0].number, shares[0].grant) == (3, 103)
    assert (shares[-1].number, shares[-1].grant, shares[-1].usage) == (OTHERS, 100 + 101 + 102, 3)


def test_a_container_keeps_its_number_and_is_forgotten_with_its_last_sample() -> None:
    history = UsageHistory()
    history.add(1, reading(held("a", 1)))
    history.add(2, reading(held("b", 1)))
    history.add(3, reading(held("b", 1), held("a", 1)))
    assert [share.number for share in since(history, 1).samples[-1].devices["GPU-a"].shares] == [0, 1]
    history.add(200_000, reading(held("c", 1)))
    history.add(200_001, reading(held("a", 1)))
    newest = since(history, 1, 200_000)
    assert [(one.number, one.volume) for one in newest.containers] == [(3, "a")]


def test_a_clock_that_is_set_back_begins_anew_and_a_step_of_a_second_does_not() -> None:
    history = UsageHistory()
    history.add(1000, reading())
    history.add(998, reading())
    assert [sample.time for sample in since(history, 1).samples] == [1000]
    history.add(500, reading())
    history.add(501, reading())
    assert [sample.time for sample in since(history, 1).samples] == [500, 501]
