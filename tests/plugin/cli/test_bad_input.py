"""What goes wrong for people, with the real programs: each is a line or two that say what to do."""

import fcntl
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon, running_daemon
from forked_command import run_command

from convgpu.cli.terminal.signals import unbroken

CONVGPU = Path(sys.executable).parent / "convgpu"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("daemon") / "d") as running:
        running.container("first", memory="2g")
        yield running


def convgpu(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock", **environment}
    return run_command(*words, env=given)


NO_ENGINE = (
    "Error: the Docker Engine at unix:///nowhere/docker.sock does not answer (No such file or directory).\n"
    "Start it with: systemctl start docker   (or name another one: -H, --context, DOCKER_HOST)\n"
)


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("run", "--gpu-memory", "2g", "image"),
        ("create", "--gpu-memory", "2g", "image"),
        ("inspect", "x"),
        ("set", "x", "2g"),
        ("devices",),
        ("drain", "0"),
        ("policy",),
        ("events",),
        ("history",),
        ("install", "cdi"),
    ],
)
def test_no_engine(words: tuple[str, ...]) -> None:
    done = convgpu(*words)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", NO_ENGINE)


def test_the_doctor_says_it_as_a_finding() -> None:
    done = convgpu("doctor")
    assert (done.returncode, done.stdout.count("does not answer"), done.stderr) == (1, 1, "")


def test_no_scheduler_in_the_directory(tmp_path: Path) -> None:
    done = convgpu("ps", "--directory", str(tmp_path))
    assert (done.returncode, f"convgpud --directory {tmp_path}" in done.stderr) == (3, True)


@pytest.mark.parametrize("words", [("inspect", "nobody"), ("set", "nobody", "2g")])
def test_a_name_that_does_not_exist(daemon: Daemon, words: tuple[str, ...]) -> None:
    done = convgpu(*words, "--directory", str(daemon.directory))
    expected = "Error: there is no container 'nobody' with a ConvGPU volume.\nSee which there are: convgpu ps\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_a_device_and_a_policy_that_do_not_exist(daemon: Daemon) -> None:
    here = ("--directory", str(daemon.directory))
    done = convgpu("drain", "7", *here)
    assert (done.returncode, "there is no GPU '7'.\nThere are: 0 (GPU-" in done.stderr) == (1, True)
    done = convgpu("policy", *here, "use", "mine")
    assert (done.returncode, "there are best-fit, fifo" in done.stderr) == (1, True)


def test_a_limit_that_cannot_be(daemon: Daemon) -> None:
    here = ("--directory", str(daemon.directory))
    done = convgpu("set", "first", "1t", *here)
    assert (done.returncode, "the largest limit that fits is" in done.stderr) == (1, True)
    done = convgpu("set", "first", "20XB", *here)
    assert (done.returncode, "'20XB' is not a size" in done.stderr) == (2, True)


def test_an_unknown_command() -> None:
    done = convgpu("runn")
    assert (done.returncode, "No such command 'runn'. Did you mean run?" in done.stderr) == (2, True)


def on_a_terminal(daemon: Daemon, **environment: str) -> str:
    """Return what `convgpu ps` shows on a terminal of 40 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    given = {**os.environ, "TERM": "xterm", "DOCKER_HOST": "unix:///nowhere", **environment}
    command = [CONVGPU, "ps", "--directory", str(daemon.directory)]
    done = subprocess.run(command, check=True, stdout=follower, stderr=follower, stdin=follower, env=given)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert done.returncode == 0
    return shown


def test_colours_are_for_terminals_that_have_them(daemon: Daemon) -> None:
    assert "\x1b[1mCONTAINER" in on_a_terminal(daemon)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(daemon, **environment)
    assert "\x1b" not in convgpu("ps", "--directory", str(daemon.directory)).stdout


def test_a_reader_that_goes_away_is_no_error(daemon: Daemon) -> None:
    command = f"{CONVGPU} ps --directory {daemon.directory} | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=False, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_who_follows_for_a_reader_that_goes_away_ends(daemon: Daemon) -> None:
    command = f"{CONVGPU} events -f --directory {daemon.directory} | head -n 1"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=120)
    assert ("first" in done.stdout, done.stderr) == (True, "")


@pytest.mark.parametrize("words", ["--help", "ps", "ps --json", "events"])
def test_a_full_disk_and_a_closed_output_are_told_in_a_line(daemon: Daemon, words: str) -> None:
    environment = {**os.environ, "CONVGPU_DIRECTORY": str(daemon.directory)}

    def written(redirection: str) -> tuple[int, str]:
        command = f"{CONVGPU} {words} {redirection}"
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, check=False, capture_output=True, text=True, env=environment)
        return done.returncode, done.stderr

    assert written(">/dev/full") == (3, "Error: No space left on device\n")
    assert written(">&-") == (0, "")
    assert written(">&- 2>&-") == (0, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up the rights of root")
def test_no_rights_on_a_socket(tmp_path: Path) -> None:
    """A socket of somebody else's, for a root that may not pass over that: this interpreter may be root's own."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        path.chmod(0o600)
        os.chown(path, 65534, 65534)
        without = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
        command = [*without, CONVGPU, "-H", f"unix://{path}", "ps"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()) == (
        3,
        [
            "Error: no permission to talk to the Docker Engine.",
            "Run this as root (sudo); members of the group docker can run, create and read.",
        ],
    )


def test_a_signal_waits_until_what_was_begun_is_undone() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), unbroken():  # noqa: PT012 - the point is what happens in between
        signal.raise_signal(signal.SIGINT)
        done.append("undone")
    assert done == ["undone"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
