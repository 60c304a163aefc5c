"""The porter's reader of carriers, under sanitizers, beside a model of what it should do with each packet.

A fixed short part of what `make fuzz` does for long. An input that fails is in the file `failing` of the test's folder.
"""

import subprocess
from pathlib import Path

from built import ROOT
from carrier_packets import seeds
from rounds import rounds

INPUTS = rounds(70_000, few=4_000)  # about seven packets each
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-DFUZZ_MAIN")
SOURCES = "porter/src/pool/{pool,units}.c porter/src/base/{packet,proc}.c"  # as `make fuzz` has them, in a shell
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_whatever_a_container_says_is_answered_as_the_header_says(tmp_path: Path) -> None:
    """And no copy of another container's changes, nor is more of the pool in use than there are copies."""
    porter, fuzzer = ROOT / "porter/src", tmp_path / "fuzzer"
    expanded = subprocess.run(["bash", "-c", f"echo {SOURCES}"], cwd=ROOT, check=True, capture_output=True, text=True)
    sources = [ROOT / name for name in expanded.stdout.split()]
    assert SOURCES in (ROOT / "scripts/fuzz").read_text()
    includes = (f"-I{porter}", f"-I{ROOT}/hook/include")
    command = ("gcc", *FLAGS, *SANITIZERS, *includes, "-o", fuzzer, ROOT / "tests/porter/fuzz_carrier.c", *sources)
    subprocess.run(command, check=True)
    files = []
    for number, seed in enumerate(seeds()):
        files.append(tmp_path / f"seed-{number:03}")
        files[-1].write_bytes(b"\0" + seed)
    done = subprocess.run(
        [fuzzer, str(INPUTS), "1", *files], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    understood, refused = map(int, done.stdout.split())
    assert understood > 5 * INPUTS
    assert refused > INPUTS // 4
