"""Recordings of a real daemon, and `convgpud replay` of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import GIB, Daemon, Process, running_daemon, wait_until

from convgpu.protocol import messages as m


def replay(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "convgpu.daemon", "replay", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def work(daemon: Daemon) -> None:
    """Two containers compete: one waits until the other ends; a limit, the policy and the drained devices change."""
    a = Process(daemon.container("a", memory="12g"))
    b = Process(daemon.container("b", memory="12g", wait="60s"))
    a.hello()
    b.hello()
    assert isinstance(a.ask(m.Allocate(0, 10 * GIB, "cuMemAlloc")), m.Accepted)
    assert isinstance(b.ask(m.Allocate(0, 13 * GIB, "cuMemAlloc")), m.Rejected)
    waiting = b.allocate(10 * GIB)
    wait_until(lambda: bool(daemon.events("paused")), "b is paused")
    daemon.admin.request("policy", policy="random")
    device = daemon.admin.request("devices")["devices"][0]["uuid"]
    daemon.admin.request("drain", device=device, drained=True)
    daemon.admin.request("drain", device=device, drained=False)
    daemon.admin.request("set", name="a", memory="10g")
    a.end()
    assert isinstance(b.answer(waiting), m.Accepted)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scheduler that works, is killed, and starts again with the process of its predecessor."""
    folder = tmp_path_factory.mktemp("recorded")
    path = folder / "recording.jsonl"
    with running_daemon(folder / "d", "simulated:16GiB", f"--record={path}") as daemon:
        work(daemon)
        wait_until(lambda: b'"granted"' in path.read_bytes(), "the last answer is written")
        daemon.kill()
        daemon.start()
        assert daemon.stop() == 0
    return path


def test_the_recording_of_a_daemon_is_replayed_without_a_difference(recording: Path) -> None:
    ended = replay(recording)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no difference" in ended.stdout
    assert "2 schedulers" in ended.stdout
    assert "4 containers" in ended.stdout  # each scheduler is told of both
    assert replay(recording, "--no-checks").stdout == ended.stdout
    found = json.loads(replay(recording, "--json").stdout)
    lines = recording.read_bytes().count(b"\n")
    assert found["difference"] is None
    assert (found["machines"], found["lines"]) == (2, lines)
    assert found["events"] == lines - 2
    assert found["seconds"] > 0


def test_the_header_says_how_the_daemon_began(recording: Path) -> None:
    first, second = [json.loads(line) for line in recording.read_text().splitlines() if '"header"' in line]
    assert list(first["capacity"].values()) == [16 * GIB]
    assert (first["policy"], first["starvation_timeout"], first["recovering"]) == ("best-fit", 60.0, False)
    assert (second["policy"], second["recovering"]) == ("random", True)


def test_a_changed_effect_is_shown(recording: Path, tmp_path: Path) -> None:
    lines = recording.read_text().splitlines(keepends=True)
    number, line = next((number, line) for number, line in enumerate(lines) if '"Accept"' in line)
    changed = json.loads(line)
    changed["effects"] = [effect for effect in changed["effects"] if effect["type"] != "Accept"]
    path = tmp_path / "changed"
    path.write_text("".join([*lines[:number], json.dumps(changed) + "\n", *lines[number + 1 :]]))
    ended = replay(path)
    assert ended.returncode == 1
    head, *rows = ended.stdout.splitlines()
    assert head == f"{path}:{number + 1}: this version decides otherwise"
    assert rows[0].split()[:1] == ["event"]
    assert "AllocationRequested" in rows[0] or "HeadroomTaken" in rows[0]
    assert not any("Accept(" in row for row in rows[: [row[:10].strip() for row in rows].index("actual")])
    assert any("Accept(" in row for row in rows)
    ended = replay(path, "--json")
    assert ended.returncode == 1
    difference = json.loads(ended.stdout)["difference"]
    assert difference["line"] == number + 1
    assert difference["expected"] == changed
    assert difference["actual"] == json.loads(line)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda text: text[:-5], "the line is cut off (no difference up to there: "),
        (lambda text: text + "garbage\n", "no line of a recording"),
        (lambda text: text.replace('"format":1', '"format":2', 1), ":1: the recording has format 2, and this version"),
        (lambda _: "", "the file is empty"),
        (lambda text: text.partition("\n")[2], ":1: an event stands before the first header"),
        (lambda _: "\x00" * 100_000, "the line is cut off"),
    ],
)
def test_a_file_that_is_no_whole_recording_is_one_clear_line(recording: Path, tmp_path: Path, damage, text) -> None:
    path = tmp_path / "damaged"
    path.write_text(damage(recording.read_text()))
    ended = replay(path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"convgpud replay: {path}")
    assert ended.stderr.count("\n") == 1
    assert text in ended.stderr


@pytest.mark.parametrize(("path", "text"), [("/nowhere", "No such file"), ("/", "Is a directory")])
def test_a_file_that_cannot_be_read_is_one_clear_line(path: str, text: str) -> None:
    ended = replay(Path(path))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"convgpud replay: {path}: {text}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/recording"])
def test_a_daemon_that_cannot_record_works_all_the_same(tmp_path: Path, path: str) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", f"--record={path}") as daemon:
        process = Process(daemon.container("a", memory="2g"))
        process.hello()
        assert isinstance(process.ask(m.Allocate(0, GIB, "cuMemAlloc")), m.Accepted)
        wait_until(lambda: "no events are recorded any more" in daemon.log.read_text(), "the log says so")
        assert daemon.stop() == 0
        assert daemon.log.read_text().count("no events are recorded any more") == 1
