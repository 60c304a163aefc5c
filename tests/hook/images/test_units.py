"""Unit test in C of the part of the hook that reads PTX."""

import subprocess
from pathlib import Path

from compiled import SOURCES, compile_c

HOOK_SOURCES = SOURCES.parents[2] / "hook" / "src"


def test_ptx(tmp_path: Path) -> None:
    check, source = SOURCES / "checks/check_ptx.c", HOOK_SOURCES / "images/ptx.c"
    program = compile_c(tmp_path / "check", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", check, source)
    finished = subprocess.run([program], check=False, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
