"""What the doctor makes of what a probe saw."""

from typing import Any

import pytest

from convgpu.cli.terminal.findings import Finding, judge_entry_points, judge_shown

GIB = 1 << 30
SEEN: dict[str, Any] = {
    "preloaded": True,
    "entry_points": {"dlsym": [2, 0], "cuGetProcAddress": [2, 0]},
    "uuids": ["GPU-a"],
    "total": 2 * GIB,
    "nvml": 2 * GIB,
}


def test_a_limit_that_holds_is_well() -> None:
    assert judge_entry_points(SEEN, "2GiB", "GPU 0") == Finding(
        "limit", "ok", "2GiB of GPU 0: refused beyond it through 2 entry points, given within it"
    )
    assert [finding.state for finding in judge_shown(SEEN, 2 * GIB, ["GPU-a", "GPU-b"])] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({"preloaded": False}, "fail", "the library is not loaded"),
        ({"entry_points": {"dlsym": [2, 0], "cuMemCreate": [0, 0]}}, "fail", "more was given through cuMemCreate"),
        ({"entry_points": {"dlsym": [1, 0]}}, "warn", "another error than out of memory by dlsym (1)"),
        ({"entry_points": {"dlsym": [2, 2]}}, "warn", "also within it by dlsym (2)"),
    ],
)
def test_a_limit_that_does_not_hold_is_found(change: dict[str, Any], state: str, words: str) -> None:
    found = judge_entry_points(SEEN | change, "2GiB", "GPU 0")
    assert (found.state, words in found.seen) == (state, True)


def test_another_gpu_or_another_size_is_found() -> None:
    strange, size = judge_shown(SEEN | {"uuids": ["GPU-x"], "total": 16 * GIB}, 2 * GIB, ["GPU-a"])
    assert (strange.check, strange.state, size.state) == ("driver", "fail", "warn")
    assert size.seen == "driver shows the container another size than its limit"


def test_a_finding_is_told_with_what_mends_it() -> None:
    assert Finding("rules", "warn", "seen", "do this\nand that").lines() == (
        ["warn  rules     seen"],
        ["                do this", "                and that"],
    )


def test_what_was_seen_fits_the_terminal_and_what_is_to_be_typed_stays_whole() -> None:
    finding = Finding("GPU", "warn", "0: card, 16GiB to hand out; drained", "Undo it: convgpu drain --undo 0")
    indent = " " * 16
    assert finding.lines(40) == (
        ["warn  GPU       0: card, 16GiB to hand", f"{indent}out; drained"],
        [f"{indent}Undo it: convgpu drain --undo 0"],
    )
    assert finding.lines() == (["warn  GPU       0: card, 16GiB to hand out; drained"], finding.lines(40)[1])
