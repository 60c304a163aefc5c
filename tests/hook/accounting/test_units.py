"""Unit tests in C of the parts of the hook that know nothing of CUDA or sockets."""

import subprocess
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c

HOOK_SOURCES = SOURCES.parents[2] / "hook" / "src"


@pytest.mark.parametrize("part", ["accounting/allocations", "accounting/small_pages", "scheduler/account"])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_part(tmp_path: Path, part: str, sanitizer: str) -> None:
    check = compile_c(
        tmp_path / "check",
        f"-fsanitize={sanitizer}",
        "-fno-sanitize-recover=all",
        SOURCES / f"checks/check_{Path(part).name}.c",
        HOOK_SOURCES / f"{part}.c",
    )
    finished = subprocess.run([check], check=False, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
