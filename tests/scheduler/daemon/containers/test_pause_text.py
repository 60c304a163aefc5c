"""What a user is told about a pause, as one line."""

from types import SimpleNamespace

import pytest

from convgpu.core.allocation.wait_reasons import Wait
from convgpu.daemon.containers.pause_text import PauseText
from convgpu.protocol.event_kinds import WaitReason

GIB = 1 << 30
SINCE = 36_933.0  # 10:15:33 UTC


def container(name: str, *, wait: float | None = None, since: float = SINCE, runs: bool = True) -> SimpleNamespace:
    engine = SimpleNamespace(name=name, image=f"image of {name}")
    return SimpleNamespace(
        volume=SimpleNamespace(engine=engine, since=since), terms=SimpleNamespace(wait=wait), runs=runs
    )


def texts(now: float, times: dict[str, float], **options: object) -> PauseText:
    known = {"v1": container("trainer"), "v2": container("other"), "own": container("own", **options)}  # type: ignore[arg-type]
    account = SimpleNamespace(grant=6 * GIB)
    machine = SimpleNamespace(account=lambda _name, _device: account, drained={"gpu"})
    registry = SimpleNamespace(by_name=known)
    return PauseText(registry, machine, {"gpu": 3, "other": 4}, times.get, lambda: now)  # type: ignore[arg-type]


def describe(text: PauseText, wait: Wait) -> str:
    session = SimpleNamespace(container="own")
    pending = SimpleNamespace(session=session, device="gpu", call="cuMemAlloc", since=SINCE)
    return text.describe(pending, 2 * GIB, wait)  # type: ignore[arg-type]


HEAD = "cuMemAlloc waits for 2GiB of GPU 3 since 10:15:33 UTC"


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (Wait(WaitReason.MEMORY, 0, ("v1",)), " behind trainer (6GiB)"),
        (Wait(WaitReason.MEMORY, 0, ("v1", "v2", "x", "y")), " behind trainer (6GiB), other (6GiB), 2 more"),
        (Wait(WaitReason.DRAINED, 0, ()), ": the GPU is drained (convgpu drain --undo); not drained: 4"),
        (Wait(WaitReason.TURN, 0, ("v1",)), " behind trainer (6GiB): others come first"),
    ],
)
def test_the_line_says_how_much_where_behind_whom_and_since_when(wait: Wait, text: str) -> None:
    assert describe(texts(SINCE, {}), wait) == HEAD + text


def test_deadline_and_estimate_are_named_as_what_they_are() -> None:
    text = texts(SINCE + 60, {"image of trainer": 300.0}, wait=90.0)
    said = describe(text, Wait(WaitReason.MEMORY, 0, ("v1",)))
    end = "; rejected at 10:17:03 UTC (wait); about 4 min more by past runs (an estimate)"
    assert said == f"{HEAD} behind trainer (6GiB){end}"


@pytest.mark.parametrize(
    ("now", "times", "behind", "expected"),
    [
        (60.0, {"image of trainer": 300.0, "image of other": 100.0}, ("v1", "v2"), 240.0),
        (60.0, {"image of trainer": 300.0}, ("v1", "v2"), None),  # nothing is known of the other
        (301.0, {"image of trainer": 300.0}, ("v1",), None),  # it runs for longer than others did
        (0.0, {}, (), None),
        (0.0, {}, ("gone",), None),
    ],
)
def test_an_estimate_only_where_all_past_runs_allow_one(
    now: float, times: dict[str, float], behind: tuple[str, ...], expected: float | None
) -> None:
    assert texts(SINCE + now, times).estimate(behind) == expected


def test_the_longest_line_fits_the_frame() -> None:
    many = tuple(f"v{number}" for number in range(1000))
    assert len(describe(texts(SINCE, {}, wait=9e8), Wait(WaitReason.SAFETY, 0, many)).encode()) < 240
