import pytest
from msgspec.structs import replace

from convgpu.cli.connect.named_containers import NamedContainer, find, join
from convgpu.cli.show.container_rows import Row, as_data, left_behind, rows, without_limit
from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.output import age
from convgpu.protocol import records
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.records import Container, Device, Devices, Session, SessionShare, Share, Waiting
from convgpu.protocol.residency.records import CardTurn

GIB = 1 << 30
NOW = 1_000_100.0
CARD = Device(uuid="GPU-a", index=0, name="card", total=16 * GIB, capacity=16 * GIB, granted=0, used=0, settling=0)
DEVICES = Devices(devices=(CARD, replace(CARD, uuid="GPU-b", index=1)), policy="best-fit")
ANONYMOUS = "0123456789abcdef" * 4
OLDER = Container(
    name=ANONYMOUS,
    mountpoint="/d/a",
    created=1_000_000.0,
    state="waiting",
    mounts=1,
    devices=(
        Share(uuid="GPU-a", limit=6 * GIB, grant=GIB // 2, usage=GIB // 4),
        Share(uuid="GPU-b", limit=6 * GIB, grant=0, usage=0),
    ),
    sessions=(Session(pid=7, program="train", since=1_000_001.0, devices=(SessionShare(uuid="GPU-a", usage=5),)),),
    waiting=(Waiting(uuid="GPU-a", size=5 * GIB, call="cuMemAlloc", pid=7, since=1_000_040.0, missing=4 * GIB),),
)
YOUNGER = Container(name="second", mountpoint="/d/s", created=1_000_050.0, state="created")
SAME_AGE = Container(name="first", mountpoint="/d/f", created=1_000_050.0, state="created")
RIGID = {"residency": None, "suspended": False, "turn": None}
UNSEEN = {"seen": None, "target": None, "out": 0, "fixed": 0, "peak": 0, "learned": None}
TRAIN = EngineContainer("c" * 64, "train", "pytorch:2", {"convgpu.user": "ana"})


def test_containers_come_oldest_first_then_by_name() -> None:
    joined = join([YOUNGER, SAME_AGE, OLDER], {ANONYMOUS: (TRAIN,), "foreign": (TRAIN,)})
    assert joined == (NamedContainer(OLDER, (TRAIN,)), NamedContainer(SAME_AGE, ()), NamedContainer(YOUNGER, ()))


def test_rows_have_one_line_per_gpu_name_each_container_once_and_say_why_it_waits() -> None:
    note = "  waits 1m for 5GiB on GPU 0: others come first, held by first, 2 ahead"
    waiting = replace(OLDER.waiting[0], reason="turn", behind=("first",), ahead=2, free=0)
    older = replace(OLDER, waiting=(waiting,), since=NOW - 7)
    assert rows([NamedContainer(older, (TRAIN,)), NamedContainer(SAME_AGE, ())], DEVICES, NOW) == [
        Row(("train", "pytorch:2", "ana", "0", "6GiB", "512MiB", "256MiB", "", "", "waiting", "7s"), style="yellow"),
        Row(("", "", "", "1", "6GiB", "0B", "0B", "", "", "", ""), style="yellow"),
        Row(note=note, style="yellow"),
        Row(("first", "-", "", "-", "-", "-", "-", "", "", "created", "50s")),
    ]


def test_a_gpu_that_is_lost_or_drained_after_it_was_chosen_is_said_below_its_container() -> None:
    lost, drained = (
        replace(CARD, health="memory of GPU-a: GPU is lost"),
        replace(CARD, uuid="GPU-b", index=1, drained=True),
    )
    placement = records.Placement(count=2, limits={}, uuids=("GPU-a", "GPU-b"), policy="spread")
    placed = replace(SAME_AGE, placement=placement)
    devices = Devices(devices=(lost, drained), policy="fifo")
    assert [row.note for row in rows([NamedContainer(placed, ())], devices, NOW)[1:]] == [
        "  GPU 0, chosen for it, does not answer: once it holds nothing there, it gets another",
        "  GPU 1, chosen for it, is drained: once it holds nothing there, it gets another",
    ]
    given = replace(SAME_AGE, placement=replace(placement, policy=""))
    assert len(rows([NamedContainer(given, ())], devices, NOW)) == 1


@pytest.mark.parametrize(
    ("reason", "behind", "why"),
    [
        ("turn", ("first",), "others come first: 5GiB are free and kept for first, which this container's limit could"),
        ("memory", ("first",), "not enough is free (5GiB free), held by first"),
        ("safety", (), "it would fit, but then not everybody could end (5GiB free)"),
    ],
)
def test_a_waiter_sees_what_is_free_and_why_it_is_not_given(reason: str, behind: tuple[str, ...], why: str) -> None:
    waiting = replace(OLDER.waiting[0], reason=reason, behind=behind, free=5 * GIB)
    older = replace(OLDER, devices=OLDER.devices[:1], since=NOW, waiting=(waiting,))
    [_, note] = rows([NamedContainer(older, ())], DEVICES, NOW)
    assert note.note.startswith(f"  waits 1m for 5GiB on GPU 0: {why}")


def test_who_waits_on_a_gpu_with_a_fault_is_told_the_fault() -> None:
    ill = Devices(devices=(replace(CARD, health="MIG mode is on"),), policy="best-fit")
    older = replace(OLDER, devices=OLDER.devices[:1], since=NOW)
    [_, note] = rows([NamedContainer(older, ())], ill, NOW)
    assert note.note == "  waits 1m for 5GiB on GPU 0: MIG mode is on"


def test_a_waiter_sees_the_external_memory() -> None:
    shared = Devices(devices=(replace(CARD, external=10 * GIB),), policy="best-fit")
    older = replace(OLDER, devices=OLDER.devices[:1], since=NOW)
    [_, note] = rows([NamedContainer(older, ())], shared, NOW)
    told = "  waits 1m for 5GiB on GPU 0: not enough is free, 10GiB are external memory"
    assert note.note == told


def test_a_limit_that_is_being_lowered_is_told() -> None:
    share = Share(uuid="GPU-b", limit=6 * GIB, grant=GIB, usage=GIB, target=GIB // 2)
    container = replace(SAME_AGE, devices=(share,))
    assert rows([NamedContainer(container, ())], DEVICES, NOW)[1] == Row(
        note="  limit on GPU 1 goes down to 512MiB as memory is freed"
    )


def test_the_schedulers_own_name_of_a_container_is_taken_where_the_engine_is_not_asked() -> None:
    known = replace(OLDER, engine=TRAIN)
    assert join([known], {}) == (NamedContainer(known, (TRAIN,)),)


def test_a_container_is_found_by_name_by_volume_and_by_the_start_of_its_id() -> None:
    listed = [NamedContainer(OLDER, (TRAIN,)), NamedContainer(SAME_AGE, ())]
    for word in ("train", "c" * 64, "cccc", ANONYMOUS, ANONYMOUS[:12]):
        assert find(listed, word) is listed[0]
    assert find(listed, "first") is listed[1]


def _train(number: int, state: str) -> NamedContainer:
    again = replace(OLDER, name=f"{number:064x}", created=OLDER.created + number, state=state)
    return NamedContainer(again, (EngineContainer(f"{number + 16:064x}", "train", "i"),))


@pytest.mark.parametrize(
    ("states", "meant"),
    [(("ended", "ended", "running"), 2), (("ended", "running", "ended"), 1), (("ended", "ended", "ended"), 2)],
)
def test_a_name_that_came_again_means_who_has_not_ended_or_the_newest(states: tuple[str, ...], meant: int) -> None:
    listed = [_train(number, state) for number, state in enumerate(states)]
    assert find(listed, "train") is listed[meant]


def test_a_name_that_two_have_that_run_names_both_by_their_ids() -> None:
    listed = [_train(1, "running"), _train(2, "waiting")]
    with pytest.raises(Refused, match=r"train \(0{12}\), train \(0{12}\)"):
        find(listed, "train")


@pytest.mark.parametrize("word", ["", "c", "ccc", "trai", "FIRST", "dddd"])
def test_another_name_is_refused_with_the_next_step(word: str) -> None:
    with pytest.raises(Refused, match=r"(?s)there is no container .*convgpu ps"):
        find([NamedContainer(OLDER, (TRAIN,)), NamedContainer(SAME_AGE, ())], word)


def test_an_id_that_two_begin_with_names_both() -> None:
    other = EngineContainer("c" * 63 + "d", "eval", "i")
    with pytest.raises(Refused, match=r"train \(c{12}\), eval \(c{12}\)"):
        find([NamedContainer(OLDER, (TRAIN,)), NamedContainer(SAME_AGE, (other,))], "cccc")


def test_a_volume_that_two_containers_have_names_both() -> None:
    other = EngineContainer("d" * 64, "eval", "pytorch:2")
    listed = NamedContainer(OLDER, (TRAIN, other))
    assert (listed.name, listed.image) == ("train, eval", "pytorch:2")


def test_an_anonymous_volume_without_container_is_shown_as_docker_shows_ids() -> None:
    assert (NamedContainer(OLDER, ()).name, NamedContainer(OLDER, ()).image) == ("0123456789ab", "-")


def test_data_has_plain_integers() -> None:
    assert as_data([NamedContainer(OLDER, (TRAIN,))], DEVICES) == [
        {
            "volume": ANONYMOUS,
            "containers": [{"id": "c" * 64, "name": "train", "image": "pytorch:2", "labels": {"convgpu.user": "ana"}}],
            "user": "ana",
            "state": "waiting",
            "since": None,
            "created": 1_000_000.0,
            "priority": 0,
            "admit": "part",
            "gang": "",
            **RIGID,
            "gpus": [
                {"index": 0, "uuid": "GPU-a", "limit": 6 * GIB, "grant": GIB // 2, "usage": GIB // 4, **UNSEEN},
                {"index": 1, "uuid": "GPU-b", "limit": 6 * GIB, "grant": 0, "usage": 0, **UNSEEN},
            ],
            "placement": None,
            "waiting": [
                {
                    "uuid": "GPU-a",
                    "size": 5 * GIB,
                    "call": "cuMemAlloc",
                    "pid": 7,
                    "since": 1_000_040.0,
                    "missing": 4 * GIB,
                    "reason": "memory",
                    "ahead": 0,
                    "behind": (),
                    "free": 0,
                    "deadline": None,
                    "estimate": None,
                }
            ],
            "processes": [
                {"pid": 7, "program": "train", "since": 1_000_001.0, "devices": ({"uuid": "GPU-a", "usage": 5},)}
            ],
        }
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("residency", "suspended", "state", "note"),
    [
        ("running", False, "running", []),
        ("stopped", True, "suspended", ["  suspended: 3GiB on the host, 1GiB on GPU 0"]),
        ("restoring", False, "restoring", ["  restoring: 3GiB on the host, 1GiB on GPU 0"]),
        ("busy", False, "busy", ["  did not stop in time, and runs on: 3GiB on the host, 1GiB on GPU 0"]),
        (
            "waiting",
            False,
            "waits for turn",
            ["  waits for its card turn since 12s, behind b, gets it within 30s: 3GiB on the host, 1GiB on GPU 0"],
        ),
    ],
)
def test_of_memory_that_can_leave_is_shown_where_it_is_and_what_its_container_does(
    residency: str, suspended: bool, state: str, note: list[str]
) -> None:
    share = Share(uuid="GPU-a", limit=6 * GIB, grant=4 * GIB, usage=4 * GIB, out=3 * GIB, fixed=GIB)
    turn = CardTurn(since=NOW - 12, behind=("b",), due=NOW + 30)
    elastic = replace(SAME_AGE, state="running", devices=(share,), residency=residency, suspended=suspended, turn=turn)
    first, *notes = rows([NamedContainer(elastic, ())], DEVICES, NOW)
    assert first.cells == ("first", "-", "", "0", "6GiB", "4GiB", "4GiB", "1GiB", "3GiB", state, "50s")
    assert [row.note for row in notes] == note


def test_containers_without_a_limit_are_named_with_what_becomes_of_them() -> None:
    first, second, third = (
        replace(CARD, unlimited=(records.Unlimited("volume", "1" * 64, GIB, 5, "an exemption"),)),
        replace(
            CARD,
            index=1,
            unlimited=(records.Unlimited("2" * 64, "2" * 64, GIB, 5, ""), records.Unlimited("3" * 64, "3" * 64, GIB)),
        ),
        replace(
            CARD,
            unlimited=(
                records.Unlimited("pid 7", "7", GIB, 5, "", 7),
                records.Unlimited("pid 8", "8", GIB, 5, "a right", 8),
                records.Unlimited("pid 9", "9", GIB, 5, None, 9),
                records.Unlimited("4" * 64, "", GIB, 0, "it has ended; was sent one: 7 'bus' on the host"),
                records.Unlimited("volume", "", GIB),
            ),
        ),
    )
    ended = "nothing permits it, so CONVGPU_OVERUSE=stop ends it"
    assert without_limit((first, second, third)) == [
        "container volume holds 1GiB of GPU 0 without a limit; an exemption",
        f"container {'2' * 12} holds 1GiB of GPU 1 without a limit; {ended}",
        f"container {'3' * 12} holds 1GiB of GPU 1 without a limit",
        "the host's program 7 holds 1GiB of GPU 0, which its user may not open, so it is ended",
        "container volume holds 1GiB of GPU 0, where its limit does not count yet: it uses no hook",
    ]
    assert left_behind((first, second, third)) == [
        f"{'4' * 12} left 1GiB of GPU 0 behind: it has ended; was sent one: 7 'bus' on the host"
    ]
