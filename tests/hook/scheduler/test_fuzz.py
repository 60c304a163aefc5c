"""The readers of the scheduler's answers, under sanitizers: a short run of what `make fuzz` does for long.

What libFuzzer finds is kept in `findings/` and tried here for ever.
"""

import subprocess
from pathlib import Path

from compiled import ROOT, SOURCES, compile_c
from replies import mutations, seeds
from rounds import rounds

FINDINGS = ROOT / "tests/hook/findings"
COUNT = rounds(3000, few=1000)


def test_replies(tmp_path: Path) -> None:
    names = (
        "base/background_thread.c",
        "base/coarse_clock.c",
        "requests/frame.c",
        "requests/requests.c",
        "scheduler/account.c",
        "scheduler/orders.c",
        "scheduler/socket_io.c",
    )
    readers = [ROOT / "hook/src" / name for name in names]
    flags = ["-DREPLAY", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    replay = compile_c(tmp_path / "replay", *flags, SOURCES / "checks/fuzz_reply.c", *readers)
    found = [finding.read_bytes() for finding in sorted(FINDINGS.glob("*"))]
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for number, reply in enumerate([*seeds(), *found, *mutations(COUNT, seed=1)]):
        (inputs / f"{number:05}").write_bytes(reply)
    done = subprocess.run(
        [replay, *sorted(map(str, inputs.iterdir()))], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
