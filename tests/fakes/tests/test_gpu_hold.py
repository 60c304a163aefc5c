"""gpu-hold's lines and exit codes, which tests and the demo read."""

import pytest
from gpu_host import CONTEXT, GIB, MIB


def events(text: str) -> list[str]:
    """Return the lines without their times and durations."""
    words = [line.split() for line in text.splitlines()]
    assert all(float(line[0]) > 1e9 for line in words)
    timed = ("init", "context", "allocate", "free")
    return [" ".join(line[1:-1] if line[1] in timed else line[1:]) for line in words]


def test_it_allocates_in_steps_and_frees(make_host) -> None:
    host = make_host(4 * GIB)
    popen = host.hold("--steps", "2", "--free", "1g", "3MiB")
    output, errors = popen.communicate()
    parts = [512 * MIB, 512 * MIB, 3 * MIB // 2, 3 * MIB // 2]
    expected = ["init CUDA_SUCCESS", "context CUDA_SUCCESS", f"memory {4 * GIB - CONTEXT} {4 * GIB}"]
    for size in parts:
        expected += [f"request {size}", f"allocate {size} CUDA_SUCCESS"]
    expected += [f"hold {GIB + 3 * MIB}", *(f"free {size} CUDA_SUCCESS" for size in parts), "exit 0"]
    assert (events(output), errors, popen.returncode) == (expected, "", 0)


def test_out_of_memory_has_its_own_exit_code_and_takes_its_time(make_host) -> None:
    host = make_host(4 * GIB, oom_us=50_000)
    popen = host.hold("4g")
    output, errors = popen.communicate()
    assert events(output)[-2:] == [f"allocate {4 * GIB} CUDA_ERROR_OUT_OF_MEMORY", "exit 3"]
    assert float(output.splitlines()[-2].split()[-1]) >= 0.05
    assert errors == "gpu-hold: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY\n"
    assert popen.returncode == 3


def test_it_holds_until_its_stdin_says_so(make_host) -> None:
    host = make_host(4 * GIB, 4 * GIB)
    popen = host.hold("--device", "1", "--wait-for-stdin", "1g")
    for line in popen.stdout:
        if line.endswith(f" hold {GIB}\n"):
            break
    assert popen.poll() is None
    assert host.process()("nvml", 1) == [0, GIB + CONTEXT, {str(popen.pid): GIB + CONTEXT}]
    output, _ = popen.communicate("\n")
    assert (events(output), popen.returncode) == (["exit 0"], 0)


def test_pauses_come_before_each_allocation_and_while_holding(make_host) -> None:
    popen = make_host(4 * GIB).hold("--pause-before", "0.05", "--hold", "0.1", "--steps", "2", "2m")
    lines = [line.split() for line in popen.communicate()[0].splitlines()]
    time = {" ".join(line[1:2]): float(line[0]) for line in lines}
    requests = [float(line[0]) for line in lines if line[1] == "request"]
    assert requests[0] - time["memory"] >= 0.05
    assert requests[1] - requests[0] >= 0.05
    assert time["exit"] - time["hold"] >= 0.1


@pytest.mark.parametrize("arguments", [["0"], ["20GX"], ["-1m"], ["1.5g"], ["--steps", "0", "1g"], ["--hold", "x"]])
def test_words_it_cannot_understand(make_host, arguments: list[str]) -> None:
    popen = make_host(4 * GIB).hold(*arguments)
    output, errors = popen.communicate()
    assert (output, popen.returncode) == ("", 1)
    assert "usage: gpu-hold" in errors
