"""Where containers with a choice are placed, when, and for how long."""

import pytest

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.placement import (
    Choice,
    Compared,
    Obstacle,
    Placement,
    PlacementPolicyChosen,
    PlacementRequested,
    ReuseBounded,
)
from convgpu.core.residency.events import ElasticSet
from convgpu.policies.memory import Fifo
from convgpu.simulate.host import SimulatedHost

SIZES = {"g0": 16, "g1": 16, "g2": 8}
ONE = Choice()


def host(capacity: dict[str, int] = SIZES, **options: bool) -> SimulatedHost:
    return SimulatedHost(Machine(capacity, Fifo(), **options))


def started(made: SimulatedHost, name: str, limit: int, choice: Choice = ONE, visible: tuple[str, ...] = ()) -> int:
    made.create(name, {device: limit for device, size in SIZES.items() if limit <= size}, choice=choice)
    return made.start(name, visible=visible)


def devices(made: SimulatedHost, name: str) -> str:
    placement = made.machine.placement(name)
    assert made.placements.get(name) == placement
    assert made.machine.accounts(name).keys() == set(placement.devices if placement else ())
    return " ".join(placement.devices) if placement else ""


def test_nothing_is_claimed_before_the_first_process() -> None:
    made = host()
    made.create("a", SIZES, choice=ONE)
    assert (devices(made, "a"), made.machine.offer("a")) == ("", SIZES)
    made.start("a")
    assert devices(made, "a") == "g0"
    assert {device: account.limit for device, account in made.machine.accounts("a").items()} == {"g0": 16}


def test_two_do_not_collide_while_another_is_idle() -> None:
    made = host()
    for name in "abcd":
        started(made, name, 8)
    assert [devices(made, name) for name in "abcd"] == ["g0", "g1", "g0", "g1"]


def test_limits_of_others_count_wherever_they_come_from() -> None:
    """Of a container without a choice too, from its mount to its end; not of a volume that nobody uses."""
    made = host()
    made.dispatch(e.ContainerCreated("idle", {"g0": 16}))
    made.create("fixed", {"g1": 10})
    started(made, "a", 4)
    assert devices(made, "a") == "g0"
    made.unmount("fixed")
    made.create("fixed2", {"g0": 4})
    started(made, "b", 4)
    assert devices(made, "b") == "g1"


def test_why_is_recorded() -> None:
    made = host()
    made.create("fixed", {"g0": 4})
    made.dispatch(e.DeviceDrained("g1", drained=True))
    made.create("a", {"g0": 12, "g1": 12, "g2": 12}, choice=ONE)
    made.start("a")
    assert made.machine.placement("a") == Placement(
        ("g0",),
        "least-promised",
        (
            Compared("g0", 12, 16, 16, 4, 1),
            Compared("g1", 12, 16, 16, 0, 0, Obstacle.DRAINED),
            Compared("g2", 12, 8, 8, 0, 0, Obstacle.CAPACITY),
        ),
    )


def test_several() -> None:
    made = host()
    started(made, "a", 8)
    started(made, "b", 4, Choice(2))
    assert devices(made, "b") == "g1 g2"


@pytest.mark.parametrize(
    ("choice", "visible", "expected"),
    [
        (ONE, (), "g1"),
        (ONE, ("g0", "g2"), "g2"),
        (ONE, ("g0",), "g0"),
        (Choice(2), ("g2", "g0"), "g0 g2"),
        (Choice(2), ("g0",), ""),
        (ONE, ("another card",), ""),
        (Choice(is_default=True), ("g0", "g1", "g2"), "g1"),
        (Choice(is_default=True), ("g2", "g0"), "g0 g2"),  # it was given certain ones: it has all of them
        (Choice(is_default=True), ("g0",), "g0"),
    ],
)
def test_only_what_the_process_sees_is_chosen(choice: Choice, visible: tuple[str, ...], expected: str) -> None:
    made = host()
    made.create("fixed", {"g0": 9, "g2": 2})
    assert bool(started(made, "a", 4, choice, visible)) is bool(expected)
    assert devices(made, "a") == expected


def test_a_lost_device_does_not_look_as_if_certain_ones_were_given() -> None:
    made = host()
    made.dispatch(e.CapacityChanged("g0", 0, is_lost=True))
    started(made, "a", 4, Choice(is_default=True), ("g1", "g2"))
    assert devices(made, "a") == "g1"


def test_a_drained_device_is_chosen_by_nobody_and_later_again() -> None:
    made = host({"g0": 16})
    made.dispatch(e.DeviceDrained("g0", drained=True))
    made.create("a", {"g0": 4}, choice=ONE)
    assert made.start("a") == 0
    made.dispatch(e.DeviceDrained("g0", drained=False))
    assert made.start("a")
    assert devices(made, "a") == "g0"


def test_it_keeps_its_place_while_a_process_lives_and_is_placed_anew_afterwards() -> None:
    made = host()
    first = started(made, "a", 8)
    second = made.start("a")
    made.allocate(second, 8, "g0")
    made.end(first)
    started(made, "b", 16)
    assert (devices(made, "a"), devices(made, "b")) == ("g0", "g1")
    made.dispatch(e.LimitsChanged("b", {"g1": 8}))
    made.end(second)
    assert devices(made, "a") == ""
    assert made.machine.device("g0").free == 16
    made.create("fixed", {"g0": 16})
    made.start("a")
    assert devices(made, "a") == "g1"


def test_memory_beyond_the_leases_keeps_the_place() -> None:
    made = host()
    session = started(made, "a", 8)
    made.dispatch(e.UnleasedMemory("a", "g0", 3))
    made.end(session)
    assert devices(made, "a") == "g0"
    made.dispatch(e.UnleasedMemory("a", "g0", 0))
    assert devices(made, "a") == ""
    made.dispatch(e.UnleasedMemory("a", "g0", 5))  # of an audit that began before
    assert made.machine.device("g0").usable == 16


def test_the_policy_can_be_changed() -> None:
    made = host()
    started(made, "a", 8)
    made.dispatch(PlacementPolicyChosen("best-fit"))
    started(made, "b", 8)
    assert (devices(made, "a"), devices(made, "b")) == ("g0", "g0")
    assert made.machine.placement_policy == "best-fit"


def test_limits_that_come_late() -> None:
    made = host()
    made.create("a", {}, choice=ONE)
    assert made.start("a") == 0  # the daemon has it refused before
    made.dispatch(e.LimitsSet("a", {"g2": 8, "g1": 8}))
    made.start("a")
    assert devices(made, "a") == "g1"


def test_a_changed_limit_holds_where_it_is_and_where_it_comes() -> None:
    made = host()
    session = started(made, "a", 8)
    made.allocate(session, 6, "g0")
    made.limit_changes.clear()
    made.dispatch(e.LimitsChanged("a", {"g0": 4, "g1": 4, "g2": 4}))
    assert made.limit_changes == [
        e.LimitInForce("a", "g1", 4, None),
        e.LimitInForce("a", "g2", 4, None),
        e.LimitInForce("a", "g0", 6, 4),
    ]
    made.end(session)
    assert made.limit_changes[3:] == [e.LimitInForce("a", "g0", 4, None)]
    made.start("a")
    assert made.machine.accounts("a")["g0"].limit == 4


def test_a_place_outlives_the_scheduler() -> None:
    made = host()
    session = started(made, "a", 8)
    made.allocate(session, 5, "g0")
    started(made, "b", 4)
    made.restart(Machine(SIZES, Fifo(), recovering=True))
    assert (devices(made, "a"), devices(made, "b")) == ("g0", "g1")
    made.reconnect_previous(0)
    made.dispatch(e.RecoveryEnded())  # nobody of b came back
    assert (devices(made, "a"), devices(made, "b")) == ("g0", "")
    assert made.machine.accounts("a")["g0"].leased == 5


def test_a_place_is_not_kept_where_no_process_can_come_back() -> None:
    made = host()
    started(made, "a", 8)
    made.restart(Machine(SIZES, Fifo()))
    assert devices(made, "a") == ""


def test_what_a_process_holds_is_where_it_is() -> None:
    """The place was not saved: the disk was full."""
    made = host(recovering=True)
    made.create("a", {"g0": 8, "g1": 8}, choice=ONE)
    made.start("a", held={"g1": 3})
    assert devices(made, "a") == "g1"
    assert made.machine.accounts("a")["g1"].leased == 3


def test_a_request_for_a_container_with_certain_devices_changes_nothing() -> None:
    made = host()
    made.create("a", {"g1": 8})
    made.dispatch(PlacementRequested("a", ("g0",)))
    assert made.machine.placement("a") is None
    assert made.machine.accounts("a").keys() == {"g1"}


def test_a_device_that_is_full_is_seen_and_its_absence_means_that_certain_ones_were_given() -> None:
    made = host()
    made.dispatch(e.CapacityChanged("g0", 0, 16))
    started(made, "a", 4, Choice(is_default=True), ("g1", "g2"))
    assert devices(made, "a") == "g1 g2"


# -- gangs ---------------------------------------------------------------------------------------------------


def gang(made: SimulatedHost, **limits: int) -> str:
    """Create containers of one gang, start their processes in this order, and return where they are."""
    for name, limit in limits.items():
        made.create(name, {d: limit for d, size in SIZES.items() if limit <= size}, choice=ONE, gang="train")
    for name in limits:
        made.start(name)
    return " ".join(devices(made, name) for name in limits)


def test_a_gang_is_on_devices_of_its_own_though_others_hold_less() -> None:
    made = host({"g0": 16, "g1": 16, "g2": 16})
    made.create("fixed", {"g1": 12})
    assert gang(made, a=4, b=4, c=4) == "g0 g2 g1"


def test_a_gang_shares_devices_when_it_has_more_containers() -> None:
    assert gang(host(), a=6, b=6, c=6, d=6) == "g0 g1 g2 g0"


def test_a_gang_leaves_room_for_those_of_it_that_have_no_place_yet() -> None:
    """By promises `c` would come onto g1, and `d` would find 16 bytes nowhere."""
    assert gang(host({"g0": 16, "g1": 16}), a=10, b=6, c=6, d=10) == "g0 g1 g0 g1"


def test_a_gang_is_never_on_one_device_with_more_than_that_has() -> None:
    made = host({"g0": 16, "g1": 16})
    assert gang(made, a=10, b=10, c=10) == "g0 g1 "
    assert [row.obstacle for row in made.machine.propose("c").compared] == [Obstacle.GANG, Obstacle.GANG]


def test_a_gang_that_was_placed_starts_whole() -> None:
    made = host()
    assert gang(made, a=12, b=12) == "g0 g1"
    asked = {session: made.allocate(session, 4, devices(made, made.processes[session].container)) for session in (1, 2)}
    assert [type(made.answers[request]) for request in asked.values() if request] == [e.Accept, e.Accept]
    assert {name: made.machine.accounts(name)[devices(made, name)].grant for name in "ab"} == {"a": 12, "b": 12}


# -- reuse counts --------------------------------------------------------------------------------------------


def test_a_device_takes_no_more_elastic_containers_than_its_reuse_count() -> None:
    made = host()
    for device in SIZES:
        made.dispatch(ReuseBounded(device, 1))
    for name in "abcd":
        made.create(name, dict.fromkeys(SIZES, 4), choice=ONE)
        if name != "c":
            made.dispatch(ElasticSet(name, dict.fromkeys(SIZES, 1)))
        made.start(name)
    assert [devices(made, name) for name in "abcd"] == ["g0", "g1", "g0", "g2"]
    made.create("e", dict.fromkeys(SIZES, 4), choice=ONE)
    made.dispatch(ElasticSet("e", dict.fromkeys(SIZES, 1)))
    assert made.start("e") == 0
    assert {row.obstacle for row in made.machine.propose("e").compared} == {Obstacle.REUSE}
    made.finish("b")
    assert made.start("e")
    assert devices(made, "e") == "g1"


def test_devices_that_a_container_was_given_keep_their_reuse_count() -> None:
    made = host()
    made.dispatch(ReuseBounded("g1", 1))
    for name, visible in (("a", ("g1",)), ("b", ("g1", "g2")), ("c", ("g1",))):
        made.create(name, dict.fromkeys(SIZES, 4), choice=Choice(is_default=True))
        made.dispatch(ElasticSet(name, dict.fromkeys(SIZES, 1)))
        made.start(name, visible=visible)
    assert [devices(made, name) for name in "abc"] == ["g1", "g2", ""]
