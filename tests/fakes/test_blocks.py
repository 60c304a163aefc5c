"""The live allocations: a C program checks them, as a million Python calls would take too long."""

import subprocess

from gpu_host import BUILD


def test_a_million_live_allocations_take_constant_work_each() -> None:
    done = subprocess.run([BUILD / "check-blocks"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    word, steps = done.stdout.split()
    assert word == "steps"
    assert int(steps) < 4 * 4_000_000
