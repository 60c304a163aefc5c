"""`convgpu ps` in the words of `docker ps`: filters, and forms of one's own."""

import pytest

from convgpu.cli.connect.named_containers import NamedContainer
from convgpu.cli.show.container_rows import COLUMNS, Row, rows
from convgpu.cli.show.selection import FIELDS, check_filter, check_format, choose, format_rows
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.records import Container, Device, Devices, Share

GIB = 1 << 30
DEVICES = Devices(
    tuple(Device(f"GPU-{name}", index, "card", 8 * GIB, 8 * GIB, 0, 0, 0) for index, name in enumerate("ab")), "fifo"
)


def container(
    name: str, state: str, *gpus: str, image: str = "pytorch:2", gang: str = "", **labels: str
) -> NamedContainer:
    record = Container(
        name=f"volume-{name}",
        mountpoint="/d",
        created=0.0,
        state=state,  # type: ignore[arg-type]
        gang=gang,
        devices=tuple(Share(f"GPU-{gpu}", 2 * GIB, GIB, GIB) for gpu in gpus),
    )
    named = {f"convgpu.{key}": value for key, value in labels.items()}
    return NamedContainer(record, (EngineContainer("c" * 64, name, image, named),))


ALL = (
    container("train-1", "running", "a", "b", user="ana"),
    container("train-2", "waiting", "a", gang="g", user="ben", job="7"),
    container("serve", "ended", "b", image="triton"),
)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([], ["train-1", "train-2", "serve"]),
        (["name=train"], ["train-1", "train-2"]),
        (["name=train", "state=waiting"], ["train-2"]),
        (["state=waiting", "state=ended"], ["train-2", "serve"]),
        (["image=trit"], ["serve"]),
        (["gpu=1"], ["train-1", "serve"]),
        (["gpu=GPU-a"], ["train-1", "train-2"]),
        (["gang=g"], ["train-2"]),
        (["user=ana"], ["train-1"]),
        (["user=an"], []),
        (["label=convgpu.user"], ["train-1", "train-2"]),
        (["label=convgpu.job=7"], ["train-2"]),
        (["label=convgpu.job="], []),
        (["state=wait"], []),
    ],
)
def test_filters(filters: list[str], names: list[str]) -> None:
    chosen = choose(ALL, [check_filter(text) for text in filters], DEVICES, ended=True)
    assert [entry.name for entry in chosen] == names


@pytest.mark.parametrize(
    ("filters", "names"),
    [([], ["train-1", "train-2"]), (["gpu=1"], ["train-1"]), (["state=ended"], ["serve"]), (["name=serve"], [])],
)
def test_those_that_have_ended_are_left_out_unless_asked_for(filters: list[str], names: list[str]) -> None:
    chosen = choose(ALL, [check_filter(text) for text in filters], DEVICES, ended=False)
    assert [entry.name for entry in chosen] == names


@pytest.mark.parametrize(
    ("text", "said"),
    [("waiting", "write KEY=VALUE"), ("stat=running", "Did you mean state?"), ("=x", "write KEY=VALUE")],
)
def test_a_filter_that_is_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        check_filter(text)


def test_a_form_has_a_line_for_each_gpu() -> None:
    shown = format_rows(r"{{.Name}}\t{{ .gpu }}\t{{.Limit}} {{.State}}", rows(ALL, DEVICES, 60.0))
    assert shown == [
        "train-1\t0\t2GiB running",
        "train-1\t1\t2GiB running",
        "train-2\t0\t2GiB waiting",
        "serve\t1\t2GiB ended",
    ]


def test_every_column_has_a_field() -> None:
    assert len(FIELDS) == len(COLUMNS)
    assert format_rows("{{.OnCard}}|", [Row(("x", *("",) * (len(COLUMNS) - 1)))]) == ["|"]


def test_a_form_with_an_unknown_field() -> None:
    with pytest.raises(ValueError, match=r"there is no field \.Nam; .*Did you mean Name\?"):
        check_format("{{.Nam}}")
