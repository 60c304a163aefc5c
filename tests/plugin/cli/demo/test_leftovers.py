"""What killed demonstrations have left is found and removed, and nothing else."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from daemon import wait_until

from convgpu.cli.demo import leftovers

CHECKOUT = Path(__file__).resolve().parents[4]
MINUTE = 60.0


def test_whoever_lives_has_left_nothing() -> None:
    ours = leftovers.owner()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = ours.partition("/")[0]
    start = leftovers._start(child.pid)
    assert start is not None
    made_by_child = f"{host}/{child.pid}/{start}"
    assert not leftovers.is_left(ours, 60 * MINUTE)
    assert not leftovers.is_left(made_by_child, 60 * MINUTE)
    assert leftovers.is_left(f"{host}/{child.pid}/{int(start) - 1}", 0.0)  # its number was another's
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert leftovers.is_left(made_by_child, 0.0)  # not even a zombie
    child.communicate()
    assert leftovers.is_left(made_by_child, 0.0)


@pytest.mark.parametrize("owned_by", [None, "", "another-host.4026/1/2", "nonsense"])
def test_what_is_not_of_this_host_has_five_minutes(owned_by: str | None) -> None:
    assert [leftovers.is_left(owned_by, age) for age in (0.0, 4 * MINUTE, 6 * MINUTE)] == [False, False, True]


def row(name: str, age: float = 0.0, owned_by: str | None = None, names: bool = True) -> dict[str, Any]:
    labels = None if owned_by is None else {leftovers.LABEL: owned_by}
    return {
        "Id": name * 2,
        "Names": [f"/{name}"] if names else None,
        "Labels": labels,
        "Created": int(time.time() - age),
    }


class Engine:
    """One that has containers and volumes, and keeps in mind what is removed."""

    def __init__(self) -> None:
        dead = leftovers.owner() + "0"
        self.containers = [
            row("convgpu-demo-1-a", owned_by=dead),
            row("any-name", owned_by=dead, names=False),
            row("convgpu-demo-2-b", owned_by=leftovers.owner()),
            row("convgpu-demo-3-c", age=6 * MINUTE),
            row("convgpu-demo-4-d", age=1 * MINUTE),
            row("convgpu-demo-mine", age=60 * MINUTE),
            row("train", age=60 * MINUTE),
        ]
        drivers = ["convgpu-demo:latest", "convgpu-demo", "convgpu:latest", "local", "convgpu-demo:latest"]
        self.volumes = [{"Name": f"v{number}", "Driver": driver} for number, driver in enumerate(drivers)]
        self.removed: list[str] = []

    def get(self, path: str, **query: object) -> Any:
        if path == "/volumes":
            assert query == {"filters": {"dangling": ["true"]}}
            return {"Volumes": self.volumes}
        return self.containers

    def remove_containers(self, names: list[str]) -> None:
        self.removed += names

    def remove_volume(self, name: str) -> bool:
        self.removed.append(name)
        return name != "v4"


def test_only_what_a_demonstration_made_is_removed() -> None:
    engine: Any = Engine()
    gone = leftovers.remove_from_engine(engine)
    containers = ["convgpu-demo-1-a", "any-name", "convgpu-demo-3-c"]
    assert engine.removed == [*(name * 2 for name in containers), "v0", "v1", "v4"]
    assert gone == ["convgpu-demo-1-a", "any-name" * 2, "convgpu-demo-3-c", "v0", "v1"]
    none: Any = SimpleNamespace(get=lambda path, **_: {"Volumes": None} if path == "/volumes" else [])
    none.remove_containers = [].extend
    assert leftovers.remove_from_engine(none) == []


class Killed:
    """A demonstration with processes in a folder of its own for temporary files, killed when its output has a word."""

    def __init__(self, folder: Path, word: str) -> None:
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CONVGPU_")}
        self.environment |= {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self.words = [sys.executable, "-m", "convgpu.cli", "demo", "--processes"]
        with subprocess.Popen(
            self.words, env=self.environment, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stdout is not None
            assert any(word in line for line in demo.stdout)
            demo.send_signal(signal.SIGKILL)

    def again(self) -> str:
        done = subprocess.run(
            self.words, env=self.environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that name the folder, or have it in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            found.append((process / "cmdline").read_text())
    return found


@pytest.mark.parametrize("word", ["start A", "is PAUSED"])
def test_nothing_of_a_killed_one_runs_on_or_stays(word: str) -> None:
    with tempfile.TemporaryDirectory(prefix="cgd") as name:  # short: sockets lie in it
        folder = Path(name)
        killed = Killed(folder, word)
        wait_until(lambda: processes_of(folder) == [], "its processes have ended")
        left = sorted(each.name for each in folder.iterdir())
        assert len(left) == 1
        assert "Removed what a killed demo had left: " in killed.again()
        assert list(folder.iterdir()) == []
