"""A launch passes its arguments on as they came, in each way that it can take: some are written in assembly."""

import re
import subprocess

import pytest
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


KNOWN = ("known", "unknown", "refused")
STREAMS = (0, 1, 2, -1)
"""-1: one that the program made."""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    program = compile_c(tmp_path_factory.mktemp("ways") / "ways", SOURCES / "standalone/launch_ways.c", GATED)
    return subprocess.check_output([program], text=True).splitlines()


def launches() -> list[str]:
    lists = re.findall(r"#define CONVGPU_(?:LONG|SHORT)_LAUNCH_CALLS\(X\).*?\n\n", CALLS.read_text(), re.DOTALL)
    symbols = re.findall(r"X\((\w+), ", "".join(lists))
    assert len(symbols) == 9
    return symbols


def test_arguments_arrive_as_they_came(said: list[str]) -> None:
    assert sorted(line for line in said if " stream " not in line) == sorted(
        f"{symbol} {way}: arguments as they came, result 42, {asked}"
        for symbol in launches()
        for way, asked in WAYS.items()
    )


def expected(symbol: str, stream: int, known: str) -> str:
    own = stream in ((0, 2) if symbol.endswith("_ptsz") else (2,))
    if own and known == "refused":
        return f"{symbol} stream {stream} {known}: arguments not as they came, result 2, asked 1"
    asked = int(own and known != "known")
    return f"{symbol} stream {stream} {known}: arguments as they came, result 42, asked {asked}"


def test_the_default_stream_of_a_thread_is_asked_for_until_it_is_known(said: list[str]) -> None:
    symbols = [symbol for symbol in launches() if symbol not in {"cuLaunch", "cuLaunchGrid"}]
    assert sorted(line for line in said if " stream " in line) == sorted(
        expected(symbol, stream, known) for symbol in symbols for stream in STREAMS for known in KNOWN
    )
