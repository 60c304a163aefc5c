"""A launch passes its arguments on as they came, in each way that it can take: some are written in assembly."""

import re
import subprocess
from pathlib import Path

from compiled import ROOT, SOURCES, compile_c

GATED = ROOT / "hook/src/interpose/gated.c"
CALLS = ROOT / "hook/src/tables/gated_calls.h"

WAYS = {
    "short": "looked 0, entered 0, inside 0",
    "first": "looked 11, entered 11, inside 0",
    "known": "looked 0, entered 0, inside 0",
    "second-place": "looked 0, entered 0, inside 0",
    "open": "looked 0, entered 0, inside 1",
    "closed": "looked 0, entered 11, inside 0",
}


def test_arguments_arrive_as_they_came(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "ways", SOURCES / "standalone/launch_ways.c", GATED)
    said = subprocess.check_output([program], text=True).splitlines()
    lists = re.findall(r"#define CONVGPU_(?:LONG|SHORT)_LAUNCH_CALLS\(X\).*?\n\n", CALLS.read_text(), re.DOTALL)
    symbols = re.findall(r"X\((\w+), ", "".join(lists))
    assert len(symbols) == 9
    assert sorted(said) == sorted(
        f"{symbol} {way}: arguments as they came, result 42, {asked}"
        for symbol in symbols
        for way, asked in WAYS.items()
    )
