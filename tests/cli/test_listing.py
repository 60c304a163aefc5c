import pytest

from convgpu.cli.engine import EngineContainer
from convgpu.cli.listing import Listed, age, as_data, join, rows
from convgpu.protocol.records import Container, Device, Devices, Session, SessionShare, Share, Waiting

GIB = 1 << 30
NOW = 1_000_100.0
CARD = Device(uuid="GPU-a", index=0, name="card", total=16 * GIB, capacity=16 * GIB, granted=0, used=0, settling=0)
DEVICES = Devices(devices=(CARD, CARD.model_copy(update={"uuid": "GPU-b", "index": 1})), policy="best-fit")
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
TRAIN = EngineContainer("c" * 64, "train", "pytorch:2")


def test_containers_come_oldest_first_then_by_name() -> None:
    joined = join([YOUNGER, SAME_AGE, OLDER], {ANONYMOUS: (TRAIN,), "foreign": (TRAIN,)})
    assert joined == (Listed(OLDER, (TRAIN,)), Listed(SAME_AGE, ()), Listed(YOUNGER, ()))


def test_rows_have_one_line_per_gpu_and_name_each_container_once() -> None:
    assert rows([Listed(OLDER, (TRAIN,)), Listed(SAME_AGE, ())], DEVICES, NOW) == [
        ("train", "pytorch:2", "0", "6GiB", "512MiB", "256MiB", "waiting", "1m", "5GiB for 1m"),
        ("", "", "1", "6GiB", "0B", "0B", "", "", ""),
        ("first", "-", "-", "-", "-", "-", "created", "50s", ""),
    ]


def test_a_volume_that_two_containers_have_names_both() -> None:
    other = EngineContainer("d" * 64, "eval", "pytorch:2")
    listed = Listed(OLDER, (TRAIN, other))
    assert (listed.name, listed.image) == ("train, eval", "pytorch:2")


def test_an_anonymous_volume_without_container_is_shown_as_docker_shows_ids() -> None:
    assert (Listed(OLDER, ()).name, Listed(OLDER, ()).image) == ("0123456789ab", "-")


def test_data_has_plain_integers() -> None:
    assert as_data([Listed(OLDER, (TRAIN,))], DEVICES) == [
        {
            "volume": ANONYMOUS,
            "containers": [{"id": "c" * 64, "name": "train", "image": "pytorch:2"}],
            "state": "waiting",
            "created": 1_000_000.0,
            "gpus": [
                {"index": 0, "uuid": "GPU-a", "limit": 6 * GIB, "grant": GIB // 2, "usage": GIB // 4},
                {"index": 1, "uuid": "GPU-b", "limit": 6 * GIB, "grant": 0, "usage": 0},
            ],
            "waiting": [
                {
                    "uuid": "GPU-a",
                    "size": 5 * GIB,
                    "call": "cuMemAlloc",
                    "pid": 7,
                    "since": 1_000_040.0,
                    "missing": 4 * GIB,
                }
            ],
            "processes": [
                {
                    "pid": 7,
                    "program": "train",
                    "since": 1_000_001.0,
                    "devices": ({"uuid": "GPU-a", "usage": 5},),
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")]
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text
