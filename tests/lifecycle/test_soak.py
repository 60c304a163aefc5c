"""Containers come and go at random while the plugin's processes are killed: nothing is left of any of them.

CONVGPU_SOAK names how many cycles (`make soak`: 500), CONVGPU_SOAK_SEED repeats a run.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from docker_engine import wait_for
from rounds import rounds

pytestmark = pytest.mark.engine

CYCLES = int(os.environ.get("CONVGPU_SOAK", rounds(24, few=12)))
SEED = int(os.environ.get("CONVGPU_SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
LONG = 100
KILL_EVERY = 20 if CYCLES > LONG else 6
MOST = 4  # containers at a time
APART = 20.0  # seconds between two kills: the Engine gives a plugin up that ends twice within seconds
OUTAGE = 90.0  # seconds after a kill in which the Engine's calls may fail, on a machine that others use too


class Soak:
    """One run; `random` decides everything but the timing."""

    def __init__(self, engine, plugin, rng):
        self.engine = engine
        self.plugin = plugin
        self.random = rng
        self.alive = []
        self.started = 0
        self.failed = 0
        self.killed = []
        self.last_kill = float("-inf")

    def docker(self, *arguments):
        """Run the client; it may fail only while the plugin is being started again."""
        done = self.engine.run(*arguments, check=False, timeout=300)
        if done.returncode != 0:
            assert time.monotonic() - self.last_kill < OUTAGE, f"docker {' '.join(arguments)}: {done.stderr}"
            self.failed += 1
        return done.returncode == 0

    def begin(self):
        name = f"soak-{self.started}"
        self.started += 1
        memory = self.random.choice(("640m", "2g", "6g"))
        source = self.random.choice(("", f"src={name},"))
        self.docker(
            *("run", "-d", "-i", "--name", name, "--network", "none", "--stop-signal", "KILL"),
            *(
                "--mount",
                f"type=volume,{source}volume-driver={self.plugin},volume-opt=memory={memory},dst=/run/convgpu",
            ),
            *("-v", f"{self.engine.directory_of(self.plugin)}/driver:/driver", "-e", "LD_LIBRARY_PATH=/driver"),
            *("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so", "convgpu/demo"),
            *("gpu-hold", "--wait-for-stdin", self.random.choice(("64m", "1g", "4g"))),
        )
        self.alive.append((name, bool(source)))

    def end(self):
        name, has_name = self.alive.pop(self.random.randrange(len(self.alive)))
        for command in self.random.choice(
            ((), (("kill", name),), (("stop", name),), (("kill", name), ("start", name)))
        ):
            # One that has ended by itself, refused by its limit, is no container to kill.
            self.engine.run(*command, check=False)
        self.remove("rm", "-f", "-v", name)
        if has_name:
            self.remove("volume", "rm", "-f", name)

    def remove(self, *command):
        """Remove something; while the plugin is away, try again."""
        wait_for(f"docker {' '.join(command)}", lambda: self.docker(*command), OUTAGE)

    def kill(self):
        processes = self.engine.processes(self.plugin)
        name = self.random.choice(sorted(processes))
        os.kill(processes[name], signal.SIGKILL)
        self.killed.append(name)
        self.last_kill = time.monotonic()

    def run(self, cycles):
        begun, killed = self.started, len(self.killed)
        # Cycles are quick on an idle machine: a kill that is due is put off, and a soak has further cycles until all
        # that were due have been.
        most = cycles // KILL_EVERY if cycles > LONG else 0
        while self.started - begun < cycles or len(self.killed) - killed < most:
            self.begin()
            due = (self.started - begun) // KILL_EVERY > len(self.killed) - killed
            if due and time.monotonic() - self.last_kill > APART:
                self.kill()
            while len(self.alive) >= self.random.randint(1, MOST):
                self.end()
        while self.alive:
            self.end()

    def remove_again(self):
        """Remove the volumes with a name that are still there.

        While the plugin is away the Engine takes them for unknown, so `docker volume rm -f` says that it was done.
        """
        for name in self.engine("volume", "ls", "-q", "--filter", "name=soak-").split():
            self.remove("volume", "rm", "-f", name)


def left_behind(engine, plugin):
    """Return everything that belongs to containers: in the book, in folders, in Docker, in the kernel."""
    directory = engine.directory_of(plugin)
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    (device,) = engine.administration(plugin, "/v1/devices")["devices"]
    return {
        "containers": [row["name"] for row in engine.containers(plugin)],
        "folders": [path.name for path in (directory / "containers").iterdir()],
        "staging": [path.name for path in (directory / "staging").iterdir()],
        "volumes": engine("volume", "ls", "-q").split(),
        "mounts": sorted(point for point in points if point.startswith(str(directory))),
        "granted": device["granted"],
        "used": device["used"],
        "settling": device["settling"],
    }


@pytest.mark.usefixtures("tidy")
def test_nothing_is_left_of_containers_that_come_and_go(engine, plugin):
    begin = time.monotonic()
    soak = Soak(engine, plugin, random.Random(SEED))  # noqa: S311 - to be repeatable
    soak.run(1)  # what the first one makes stays: the read-only view
    nothing = left_behind(engine, plugin)
    try:
        soak.run(CYCLES)
        engine.wait_for_plugin(plugin)
        soak.remove_again()
        wait_for("nothing is left", lambda: left_behind(engine, plugin) == nothing, 300.0)
    except AssertionError as error:
        error.add_note(f"seed {SEED}, killed {soak.killed}; before {nothing}, now {left_behind(engine, plugin)}")
        raise
    assert nothing["granted"] == nothing["used"] == 0
    seconds = time.monotonic() - begin
    print(
        f"{soak.started - 1} cycles in {seconds:.0f} s, seed {SEED}: killed {len(soak.killed)} processes of the plugin "
        f"({', '.join(soak.killed)}), {soak.failed} calls failed meanwhile; nothing is left"
    )
