"""The readers of what a scheduler sends, under sanitizers: a fixed short part of what `make fuzz` does for long.

What libFuzzer finds is kept in `findings/` and tried here for ever. An input that fails is in the file `failing` of the
test's folder.
"""

import subprocess
from pathlib import Path

from compiled import ROOT, SOURCES, compile_c
from replies import seeds
from rounds import rounds

FINDINGS = ROOT / "tests/hook/findings"
INPUTS = rounds(600_000, few=12_000)  # nearly two frames each
READERS = (
    "base/background_thread.c",
    "base/coarse_clock.c",
    "requests/frame.c",
    "requests/requests.c",
    "scheduler/account.c",
    "scheduler/orders.c",
    "scheduler/socket_io.c",
)


def test_whatever_a_scheduler_sends_is_read_as_the_protocol_says(tmp_path: Path) -> None:
    flags = ["-DFUZZ_MAIN", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    readers = [ROOT / "hook/src" / name for name in READERS]
    fuzzer = compile_c(tmp_path / "fuzzer", *flags, SOURCES / "checks/fuzz_reply.c", *readers)
    files = sorted(FINDINGS.glob("*"))
    for number, reply in enumerate(seeds()):
        files.append(tmp_path / f"seed-{number:03}")
        files[-1].write_bytes(reply)
    done = subprocess.run(
        [fuzzer, str(INPUTS), "1", *files], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    understood, refused = map(int, done.stdout.split())
    assert understood + refused > rounds(1_000_000, few=20_000)
    assert min(understood, refused) > INPUTS // 2
