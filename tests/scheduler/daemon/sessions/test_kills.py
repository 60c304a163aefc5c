"""convgpud killed at any instant, hundreds of times, while programs behind the real hook allocate, wait and are killed.

An over-grant shows itself: the simulated device is then full, and a program is refused memory that it was granted. A
lost byte shows itself: at the end not everything is free. A lost waiter shows itself: a program never ends.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from daemon import DRIVER, GIB, Daemon, running_daemon, wait_until
from rounds import rounds

KILLS = rounds(200, few=60)
CONTAINERS = 6
LIMIT = 7 * GIB
# In a slow minute fewer kills have to do.
MAX_SETTLING_TIME = 35.0


class Worker(threading.Thread):
    """Runs one program after the other in a container until it is told to stop; some are killed in the middle."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self.folder = folder
        self.stop = threading.Event()
        self.ended = 0
        self.failures: list[str] = []
        self._draw = random.Random(seed)  # noqa: S311 - the same kills again
        self.program: subprocess.Popen[str] | None = None

    def run(self) -> None:
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(self.folder / "driver"),
            "LD_PRELOAD": str(self.folder / "libconvgpu.so"),
        }
        while not self.stop.is_set() and not self.failures:
            sizes = [f"{self._draw.randrange(256, 2048)}m" for _ in range(self._draw.randrange(1, 4))]
            command = [str(DRIVER / "gpu-hold"), "--hold", str(self._draw.uniform(0.0, 0.3)), *sizes]
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            ) as self.program:
                killed = self._draw.random() < 0.2
                self._wait(self._draw.uniform(0.0, 0.3) if killed else None)
                _out, err = self.program.communicate()
            if "CUDA_ERROR_SYSTEM_NOT_READY" in err:
                continue  # it starts without a scheduler: the one error that a kill may cause
            if self.program.returncode not in ((0, -signal.SIGKILL) if killed else (0,)):
                self.failures.append(f"{command}: {self.program.returncode}: {err}")
            self.ended += 1

    def _wait(self, kill_after: float | None) -> None:
        assert self.program is not None
        if kill_after is None:
            return
        try:
            self.program.wait(kill_after)
        except subprocess.TimeoutExpired:
            self.program.kill()


def check_book(daemon: Daemon) -> None:
    for device in daemon.admin.request("devices")["devices"]:
        assert 0 <= device["used"] <= device["granted"] <= device["capacity"] == 16 * GIB


def test_a_scheduler_killed_at_any_instant_loses_nothing_and_grants_nothing_twice(tmp_path: Path) -> None:
    draw = random.Random(4)  # noqa: S311 - the same kills again
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=200ms") as daemon:
        folders = [daemon.container(f"c{number}", memory=str(LIMIT)) for number in range(CONTAINERS)]
        daemon.kill()
        workers = [Worker(folder, seed) for seed, folder in enumerate(folders)]
        daemon.launch()
        for worker in workers:
            worker.start()
        kills, begun = 0, time.monotonic()
        try:
            while kills < KILLS and time.monotonic() - begun < MAX_SETTLING_TIME:
                # Most die young, in the middle of opening, of recovery or of work; some live to serve.
                time.sleep(draw.choice((0.02, 0.05, 0.1, 0.2, 0.3, 1.2)) * draw.random())
                daemon.kill()
                kills += 1
                daemon.launch()
                if kills % 20 == 0:
                    check_book(daemon)
        finally:
            for worker in workers:
                worker.stop.set()
                worker.join(120)
            stuck = [worker.program.args for worker in workers if worker.is_alive() and worker.program is not None]
            for worker in workers:
                if worker.is_alive() and worker.program is not None:
                    worker.program.kill()
        print(f"{kills} kills, {sum(worker.ended for worker in workers)} programs", file=sys.stderr)
        assert (stuck, [worker.failures for worker in workers]) == ([], [[]] * CONTAINERS)
        assert all(worker.ended for worker in workers)
        wait_until(lambda: is_all_free(daemon), "everything is free again")
        check_book(daemon)
        daemon.kill()
        log = daemon.log.read_text()
        assert "Traceback" not in log
        assert "CRITICAL" not in log


def is_all_free(daemon: Daemon) -> bool:
    [device] = daemon.admin.request("devices")["devices"]
    sessions = [one["sessions"] for one in daemon.admin.request("containers")["containers"]]
    return (device["used"], device["settling"], device["external"]) == (0, 0, 0) and not any(sessions)
