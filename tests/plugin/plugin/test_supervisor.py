"""The processes that are kept running, with small processes of ours in their place."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

RUN = """
import json, os, sys
from pathlib import Path
from convgpu.plugin.supervisor import Supervisor
codes, sockets, settings = map(json.loads, sys.argv[1:])
commands = {name: [sys.executable, "-c", code, name] for name, code in codes.items()}
sockets = {name: Path(path) for name, path in sockets.items()}
sys.exit(Supervisor(commands, os.environ, sockets, **settings).run())
"""
# Each says its name and process id once it is ready, in one write, as all of them share the pipe.
READY = "import os, signal, sys, time; os.write(1, f'{sys.argv[1]} {os.getpid()}\\n'.encode()); "
WAIT = READY + "signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "time.sleep(600)"
OBEDIENT = "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0)); " + WAIT


@pytest.fixture
def start():
    started = []

    def begin(*codes, sockets=None, **settings):
        commands = {f"p{number}": code for number, code in enumerate(codes)}
        settings = {"grace": 5.0, "min_uptime": 60.0, **settings}
        words = map(json.dumps, (commands, sockets or {}, settings))
        process = subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE, text=True)
        started.append(process)
        pids = dict(process.stdout.readline().split() for _ in codes)
        return process, [int(pids[name]) for name in sorted(pids)]

    yield begin
    for process in started:
        process.kill()
        # They end with their parent, so the pipe is closed as well.
        process.communicate(timeout=120)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_told_to_end_it_ends_both_and_returns_zero(start):
    process, children = start(WAIT, WAIT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert [is_gone(pid) for pid in children] == [True, True]


def test_one_that_is_killed_is_started_again_and_the_other_stays(start):
    process, (first, second) = start(WAIT, WAIT, min_uptime=0.0)
    os.kill(first, signal.SIGKILL)
    name, again = process.stdout.readline().split()
    assert (name, int(again) != first, is_gone(first), is_gone(second)) == ("p0", True, True, False)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert [is_gone(pid) for pid in (int(again), second)] == [True, True]


def test_when_one_is_killed_soon_the_other_is_ended(start):
    process, (first, second) = start(WAIT, WAIT)
    os.kill(first, signal.SIGKILL)
    assert process.wait(120) == 1
    assert is_gone(second)


def test_one_that_does_not_give_up_starts_again_what_is_killed_soon(start):
    process, (first, second) = start(WAIT, WAIT, gives_up=False)
    for _ in range(2):
        os.kill(first, signal.SIGKILL)
        name, again = process.stdout.readline().split()
        assert (name, int(again) != first, is_gone(first), is_gone(second)) == ("p0", True, True, False)
        first = int(again)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


ACCEPTS = """
import os, signal, socket, sys
name, option, address = sys.argv[1:]
listener = socket.socket(fileno=int(address.removeprefix("fd://")))
os.write(1, f"{name} {os.getpid()}\\n".encode())
assert option == "--bind"
signal.sigwait({signal.SIGUSR1})
client = listener.accept()[0]
client.sendall(b"accepted late")
signal.pause()
"""


def connect(path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(120)
    client.connect(str(path))
    return client


def test_who_comes_before_a_child_accepts_waits_for_it(start, tmp_path):
    path = tmp_path / "s"
    blocked = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\n" + ACCEPTS
    process, (first,) = start(blocked, sockets={"p0": str(path)}, gives_up=False)
    for _ in range(2):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with connect(path) as client:
            os.kill(first, signal.SIGUSR1)
            assert client.recv(100) == b"accepted late"
        os.kill(first, signal.SIGKILL)  # the next one has a socket of its own at the same place
        first = int(process.stdout.readline().split()[1])


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("mine")
    code = "import sys; from pathlib import Path; from convgpu.plugin.supervisor import Supervisor\n"
    code += f"Supervisor({{'a': ['true']}}, {{}}, {{'a': Path({str(path)!r})}}).run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "Address already in use" in done.stderr, path.read_text()) == (1, True, "mine")


def test_when_one_ends_with_success_the_other_is_ended_all_the_same(start):
    process, (first, second) = start(OBEDIENT, WAIT)
    os.kill(first, signal.SIGUSR1)
    assert process.wait(120) == 1
    assert is_gone(second)


def test_one_that_ignores_the_request_is_killed(start):
    process, children = start(STUBBORN, WAIT, grace=0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert [is_gone(pid) for pid in children] == [True, True]


def test_a_command_that_does_not_exist_leaves_nothing_behind(tmp_path):
    code = (
        "import os, sys; from convgpu.plugin.supervisor import Supervisor\n"
        "try: Supervisor({'a': [sys.executable, '-c', 'import signal; signal.pause()'], 'b': ['/nonexistent']},"
        " os.environ).run()\n"
        "except FileNotFoundError: sys.exit(7)"
    )
    # The first child keeps the pipe open, so the end of the output proves that it is gone.
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 7


def test_when_the_parent_is_killed_its_children_end(start):
    process, _children = start(WAIT, WAIT)
    process.kill()
    # The end of the output proves it: both of them hold the pipe as long as they live.
    assert process.communicate(timeout=120) == ("", None)
