"""Unit tests in C of the part of the hook that reads images."""

import subprocess
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c

HOOK_SOURCES = SOURCES.parents[2] / "hook" / "src"


@pytest.mark.parametrize(("name", "sources"), [("ptx", ["ptx"]), ("image", ["image", "ptx", "driver_calls"])])
def test_unit(tmp_path: Path, name: str, sources: list[str]) -> None:
    files = [SOURCES / f"checks/check_{name}.c", *(HOOK_SOURCES / f"images/{source}.c" for source in sources)]
    program = compile_c(tmp_path / "check", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *files)
    finished = subprocess.run([program], check=False, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
