"""Unit tests in C of the parts of the hook that know nothing of CUDA or sockets."""

import subprocess
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c
from rounds import rounds

HOOK_SOURCES = SOURCES.parents[2] / "hook" / "src"


PARTS = {
    "allocations": ("accounting/allocations.c",),
    "small_pages": ("accounting/small_pages.c",),
    "account": ("scheduler/account.c",),
    "gate": ("gate/capture_calls.c", "gate/queue.c", "accounting/allocations.c", "base/coarse_clock.c"),
    "ranges": ("backing/ranges.c",),
}
"""Name of the check, and the sources that it tests or needs; gate.c and captures.c are included by their check."""


WORDS = {"gate": [str(rounds(200_000, few=60_000))]}
WITH_THREADS = ("account", "gate")
BUILDS = [*((part, "address,undefined") for part in PARTS), *((part, "thread") for part in WITH_THREADS)]


@pytest.mark.parametrize(("part", "sanitizer"), BUILDS)
def test_part(tmp_path: Path, part: str, sanitizer: str) -> None:
    check = compile_c(
        tmp_path / "check",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        SOURCES / f"checks/check_{part}.c",
        *(HOOK_SOURCES / source for source in PARTS[part]),
    )
    finished = subprocess.run([check, *WORDS.get(part, [])], check=False, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
