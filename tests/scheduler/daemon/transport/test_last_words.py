"""What a process said just before its end."""

import signal
from pathlib import Path

import pytest
from daemon import GIB, Process, running_daemon, wait_until

from convgpu.protocol import messages as m
from convgpu.protocol.inspection.messages import EXPECTED, Exported
from convgpu.protocol.messages import pack


@pytest.mark.parametrize("questions", [0, 1, 5])
def test_what_a_process_said_before_its_end_is_read_though_nobody_reads_the_answers(
    tmp_path: Path, questions: int
) -> None:
    """The answer to a question meets the end first (EPIPE); what was said after it counted for nothing."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=60s", "--simulated-settle=0") as daemon:
        folder = daemon.container("a", memory="4g")
        stays, killed = Process(folder), Process(folder)
        stays.hello()
        killed.hello()
        assert isinstance(killed.answer(killed.allocate(GIB)), m.Accepted)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGSTOP)
        for _ in range(questions):
            killed.send(m.Query(0))
        killed.socket.sendall(pack(Exported(77, GIB, 0, EXPECTED, 0, 0)))
        killed.end()
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(daemon.state("a")["sessions"]) == 1, "it has ended")
        assert daemon.state("a")["devices"][0]["usage"] == GIB


def test_what_only_asks_is_not_done_for_a_process_that_has_ended(tmp_path: Path) -> None:
    """Thousands of questions that lay in the sockets of killed processes held up the calls of all others."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", "--audit=60s", "--simulated-settle=0") as daemon:
        folder = daemon.container("a", memory="4g")
        stays, killed = Process(folder), Process(folder)
        stays.hello()
        killed.hello()
        assert isinstance(stays.answer(stays.allocate(GIB)), m.Accepted)
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGSTOP)
        killed.socket.sendall(b"".join(pack(m.Allocate(0, GIB >> 9, "cuMemAlloc"), 100 + n) for n in range(500)))
        killed.end()
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: len(daemon.state("a")["sessions"]) == 1, "it has ended")
        assert daemon.state("a")["devices"][0]["peak"] < GIB + (GIB >> 3)
