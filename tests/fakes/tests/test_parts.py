"""What Python cannot try: C programs that check the parts of the simulated driver from inside."""

import subprocess

from gpu_host import BUILD


def test_a_million_live_allocations_take_constant_work_each() -> None:
    done = subprocess.run([BUILD / "check-blocks"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    word, steps = done.stdout.split()
    assert word == "steps"
    assert int(steps) < 4 * 4_000_000


def test_both_libraries_of_a_process_exclude_each_other(tmp_path) -> None:
    program = [BUILD / "check-locks", tmp_path / "state"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == "excluded\n"
