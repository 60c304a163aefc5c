"""Containers that have the host's software and the card, started as a user would type it."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
COMPILED = Path(__file__).parents[2] / "build/gpu/programs"
NAME = os.environ.get("CONVGPU_NAME", "")  # of the plugin
SIMULATED = os.environ.get("CONVGPU_DEVICES", "").startswith("simulated:")  # a rehearsal
GIB = 1 << 30
NODES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm")
TIMEOUT = 120.0  # seconds after which something that should have happened counts as missing


def docker(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a docker command; show what it said when it fails."""
    done = subprocess.run(["docker", *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0 or not check, f"docker {shlex.join(words)}: {done.stderr}"
    return done


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll a condition of real processes, with a bound."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT:g} s: {what}"
        time.sleep(0.02)


def run_options(
    plugin: str,
    memory: str,
    libraries: str,
    hook: str = "/run/convgpu/libconvgpu.so",
    visible: str | None = None,
    volume: str = "",
    runtime: str = "",
) -> list[str]:
    """Return the options of `docker run`: ConvGPU's two, then what gives a container the host's card and software.

    `visible`: CUDA_VISIBLE_DEVICES, if it is to be set. `volume`: further options of the volume, `name=value ...`.
    `runtime`: of the Engine, if not its default.
    """
    # In double quotes, because a limit for each device has commas: the option is CSV.
    volume_options = "".join(f',"volume-opt={option}"' for option in [f"memory={memory}", *volume.split()])
    convgpu = ["--mount", f"type=volume,volume-driver={plugin}{volume_options},dst=/run/convgpu"]
    convgpu += ["-e", f"LD_PRELOAD={hook}"]
    nodes = [word for pattern in NODES for node in Path("/dev").glob(pattern) for word in ("--device", str(node))]
    folders = [word for name in ("usr", "opt", "etc") for word in ("-v", f"/{name}:/{name}:ro")]
    environment = ["-e", f"PATH={os.environ['PATH']}", "-e", f"LD_LIBRARY_PATH={libraries}"]
    environment += [] if visible is None else ["-e", f"CUDA_VISIBLE_DEVICES={visible}"]
    programs = ["-v", f"{PROGRAMS}:/programs:ro", "-v", f"{COMPILED}:/compiled:ro"]
    runtimes = ["--runtime", runtime] if runtime else []
    return [*convgpu, *runtimes, "--network", "none", *nodes, *folders, *programs, *environment]


class Container:
    """One container, running. `volume`: the name of its ConvGPU volume."""

    def __init__(self, name: str, options: list[str], command: list[str]) -> None:
        self.name = name
        docker("rm", "-f", "-v", name, check=False)
        docker("run", "-d", "--name", name, *options, "convgpu/hostfs", *command)
        mounts = json.loads(docker("inspect", "-f", "{{json .Mounts}}", name).stdout)
        self.volume = next(mount["Name"] for mount in mounts if mount["Destination"] == "/run/convgpu")

    def reports(self) -> dict[str, dict]:
        """Return what the program has said so far, by event."""
        said = docker("logs", self.name)
        lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
        reports = [json.loads(line) for line in lines]
        return {report["event"]: report for report in reports}

    def wait_for(self, event: str) -> dict:
        """Return the report of an event, once it is there."""

        def there() -> bool:
            assert event in self.reports() or self.running(), f"{self.name} ended without {event!r}: {self.output()}"
            return event in self.reports()

        wait_until(there, f"{self.name} says {event!r}")
        return self.reports()[event]

    def running(self) -> bool:
        return docker("inspect", "-f", "{{.State.Running}}", self.name).stdout.strip() == "true"

    def signal(self, name: str) -> None:
        docker("kill", "-s", name, self.name)

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        wait_until(lambda: not self.running(), f"{self.name} ends")
        return int(docker("inspect", "-f", "{{.State.ExitCode}}", self.name).stdout)

    def output(self) -> str:
        said = docker("logs", self.name)
        return f"{said.stdout}\n{said.stderr}"

    def remove(self) -> None:
        docker("rm", "-f", "-v", self.name)


Start = Callable[..., Container]
