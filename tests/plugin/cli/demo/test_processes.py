"""The demonstration with real processes: daemon, hook and simulated driver, no Docker."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[4]
GIB = 1 << 30


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CONVGPU_")}
    return subprocess.run(
        [sys.executable, "-m", "convgpu.cli", "demo", "--processes", "--json", *words],
        env=environment,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_memory_leaves_for_another_process_and_comes_back() -> None:
    done = demo("--suspend")
    assert done.returncode == 0, done.stdout + done.stderr
    first = json.loads(done.stdout)["containers"][0]
    assert first["exit_code"] == 0  # it has compared what came back
    assert next(stop["size"] > 0 and stop["end"] is not None for stop in first["stops"])
    assert "LEAVES" in done.stderr
    assert "COMES BACK" in done.stderr


def test_a_process_is_paused_and_goes_on_by_itself() -> None:
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert (data["pause_seen"], data["problems"]) == (True, [])
    assert [(row["name"], row["limit"], row["exit_code"]) for row in data["containers"]] == [
        ("A", 7 * GIB, 0),
        ("B", 8 * GIB, 0),
        ("C", 6 * GIB, 0),
        ("D", 4 * GIB, 0),
    ]
    by_name = {row["name"]: row for row in data["containers"]}
    granted = [(name, pause) for name, row in by_name.items() for pause in row["pauses"] if pause["granted"]]
    assert granted
    kinds = [event["kind"] for event in data["events"]]
    # Nobody goes on before a process has ended: there is no other way to get memory here.
    assert kinds.index("paused") < kinds.index("returned") < kinds.index("granted")
    assert "is PAUSED" in done.stderr
    assert "Without Docker" in done.stderr
