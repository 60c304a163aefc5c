"""The processes that are kept running, with small processes of ours in their place."""

import json
import os
import signal
import subprocess
import sys

import pytest

RUN = """
import json, os, sys
from convgpu.plugin.supervisor import Supervisor
commands = {name: [sys.executable, "-c", code, name] for name, code in json.loads(sys.argv[2]).items()}
grace, min_uptime = map(float, sys.argv[1].split(","))
sys.exit(Supervisor(commands, os.environ, grace, min_uptime).run())
"""
# Each says its name and process id once it is ready, in one write, as all of them share the pipe.
READY = "import os, signal, sys, time; os.write(1, f'{sys.argv[1]} {os.getpid()}\\n'.encode()); "
WAIT = READY + "signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "time.sleep(60)"
OBEDIENT = "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0)); " + WAIT


@pytest.fixture
def start():
    started = []

    def begin(*codes, grace=5.0, min_uptime=60.0):
        commands = json.dumps({f"p{number}": code for number, code in enumerate(codes)})
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, f"{grace},{min_uptime}", commands], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        pids = dict(process.stdout.readline().split() for _ in codes)
        return process, [int(pids[name]) for name in sorted(pids)]

    yield begin
    for process in started:
        process.kill()
        # They end with their parent, so the pipe is closed as well.
        process.communicate(timeout=10)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_told_to_end_it_ends_both_and_returns_zero(start):
    process, children = start(WAIT, WAIT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert [is_gone(pid) for pid in children] == [True, True]


def test_one_that_is_killed_is_started_again_and_the_other_stays(start):
    process, (first, second) = start(WAIT, WAIT, min_uptime=0.0)
    os.kill(first, signal.SIGKILL)
    name, again = process.stdout.readline().split()
    assert (name, int(again) != first, is_gone(first), is_gone(second)) == ("p0", True, True, False)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert [is_gone(pid) for pid in (int(again), second)] == [True, True]


def test_when_one_is_killed_soon_the_other_is_ended(start):
    process, (first, second) = start(WAIT, WAIT)
    os.kill(first, signal.SIGKILL)
    assert process.wait(10) == 1
    assert is_gone(second)


def test_when_one_ends_with_success_the_other_is_ended_all_the_same(start):
    process, (first, second) = start(OBEDIENT, WAIT)
    os.kill(first, signal.SIGUSR1)
    assert process.wait(10) == 1
    assert is_gone(second)


def test_one_that_ignores_the_request_is_killed(start):
    process, children = start(STUBBORN, WAIT, grace=0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert [is_gone(pid) for pid in children] == [True, True]


def test_a_command_that_does_not_exist_leaves_nothing_behind(tmp_path):
    code = (
        "import os, sys; from convgpu.plugin.supervisor import Supervisor\n"
        "try: Supervisor({'a': [sys.executable, '-c', 'import signal; signal.pause()'], 'b': ['/nonexistent']},"
        " os.environ).run()\n"
        "except FileNotFoundError: sys.exit(7)"
    )
    # The first child keeps the pipe open, so the end of the output proves that it is gone.
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path, timeout=10, check=False)
    assert done.returncode == 7


def test_when_the_parent_is_killed_its_children_end(start):
    process, _children = start(WAIT, WAIT)
    process.kill()
    # The end of the output proves it: both of them hold the pipe as long as they live.
    assert process.communicate(timeout=10) == ("", None)
