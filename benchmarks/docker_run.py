"""`docker run` with the plugin's volume against without, and `convgpu run`, in turns, on the Engine that answers."""

import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _report import Figure, at_most, report

NAME = os.environ.get("CONVGPU_NAME", "convgpu-demo")
IMAGE = "convgpu/demo"
TURNS = 21
VOLUME = ("--mount", f"type=volume,volume-driver={NAME},volume-opt=memory=1g,dst=/run/convgpu")


CONVGPU = str(Path(sys.executable).parent / "convgpu")


def run(*options: str, program: str = "docker") -> float:
    """Seconds of one `docker run --rm`, or `convgpu run --rm`."""
    start = time.perf_counter()
    subprocess.run([program, "run", "--rm", "--network=none", *options, IMAGE, "true"], check=True)
    return time.perf_counter() - start


def same_words(*options: str) -> list[str]:
    """The options that `convgpu run` gives docker for these."""
    line = [CONVGPU, "run", "--dry-run", *options, IMAGE]
    printed = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return shlex.split(printed)[2:-1]  # without `docker run` and the image


def prove_that_the_limit_is_on() -> None:
    """The same line with a limit that no device has must be refused, or we would measure nothing."""
    absurd = (VOLUME[0], VOLUME[1].replace("memory=1g", "memory=1t"))
    refused = subprocess.run(
        ["docker", "run", "--rm", *absurd, IMAGE, "true"], capture_output=True, text=True, check=False
    )
    if "the largest limit that fits" not in refused.stderr:
        raise SystemExit(f"the limit is not on: {refused.stderr}")


def missing() -> str | None:
    """Why this cannot be measured here."""
    for what, command in (
        ("Docker Engine", ["docker", "version"]),
        (f"plugin {NAME}", ["docker", "plugin", "inspect", NAME]),
        (f"image {IMAGE}", ["docker", "image", "inspect", IMAGE]),
    ):
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return f"no {what}: `make demo` prepares it"
    return None


def main() -> None:
    """Without, with, without, ...; the first of each is thrown away."""
    if reason := missing():
        sys.exit(f"docker_run: NOT RUN: {reason}")
    prove_that_the_limit_is_on()
    # An anonymous volume of Docker's own driver belongs to the comparison: that much any volume costs.
    local = ("--mount", "type=volume,dst=/run/convgpu")
    command = ("--gpu-memory", "1g", "--gpu-volume-driver", NAME)
    same = same_words(*command)
    rows = [(run(), run(*local), run(*VOLUME), run(*same), run(*command, program=CONVGPU)) for _ in range(TURNS)][1:]
    bare, plain, ours, _, typed = (statistics.median(column) for column in zip(*rows, strict=True))
    added = statistics.median(row[3] - row[2] for row in rows)
    more = statistics.median(row[4] - row[3] for row in rows)  # benchmarks/command_line.py: the same without docker
    figures = [
        Figure("docker run, no volume, p50", bare * 1e3, "ms"),
        Figure("docker run, a volume of driver local, p50", plain * 1e3, "ms"),
        Figure("docker run, a ConvGPU volume, p50", ours * 1e3, "ms"),
        at_most("with the plugin against without", ours / bare, "", 1.05),
        Figure("with the plugin against a local volume", ours / plain, ""),
        Figure("convgpu run, p50", typed * 1e3, "ms"),
        Figure("what convgpu run adds to the line: one more mount, the library; p50 of pairs", added * 1e3, "ms"),
        at_most("convgpu run more than docker run with the same words, p50 of pairs", more * 1e3, "ms", 60),
    ]
    report("docker_run", figures)


if __name__ == "__main__":
    main()
