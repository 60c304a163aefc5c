"""`convgpu top`: what it shows, and the command on a terminal of 80 columns."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon import running_daemon
from msgspec.structs import replace

from convgpu.cli.__main__ import main
from convgpu.cli.connect.named_containers import NamedContainer
from convgpu.cli.show.top_view import Controls, Line, Snapshot, view
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.records import Container, Device, Devices, Share, Waiting
from convgpu.protocol.residency.records import CardTurn

GIB = 1 << 30
CARD = Device(
    uuid="GPU-a", index=0, name="card", total=16 * GIB, capacity=16 * GIB, granted=12 * GIB, used=8 * GIB, settling=0
)
SHARE = Share(uuid="GPU-a", limit=12 * GIB, grant=12 * GIB, usage=8 * GIB)
WAITS = Waiting(uuid="GPU-a", size=GIB, call="cuMemAlloc", pid=1, since=90.0, missing=GIB, behind=("v0",))


def listed(number: int, **changes: object) -> NamedContainer:
    record = Container(name=f"v{number}", mountpoint="/d", created=float(number), state="running", devices=(SHARE,))
    return NamedContainer(replace(record, **changes), (EngineContainer(f"{number:064}", f"c{number}", "image"),))


SEEN = Snapshot(
    100.0, Devices(devices=(CARD,), policy="fifo"), (listed(0), listed(1, state="waiting", waiting=(WAITS,)))
)


def test_the_screen_has_devices_containers_and_reasons() -> None:
    lines = view(SEEN, Controls(), "12:00:00", (80, 10), "#+ ")
    assert lines == [
        Line("convgpu 12:00:00  2 containers, 1 waiting; policy fifo", "bold"),
        Line("GPU 0 card                [#############+++++++      ] 8GiB of 16GiB"),
        Line(""),
        Line("CONTAINER  IMAGE  GPU  LIMIT  GRANT  USAGE  STATE    SINCE", "bold"),
        Line("c0         image    0  12GiB  12GiB   8GiB  running     1m"),
        Line("c1         image    0  12GiB  12GiB   8GiB  waiting     1m", "yellow"),
        Line("  waits 10s for 1GiB on GPU 0: not enough is free, held by c0", "yellow"),
        *[Line("")] * 2,
        Line("q quit   s sort   space hold   up/down scroll   by age", "dim"),
    ]


def test_of_memory_that_leaves_it_says_where_it_is_and_whose_turn_it_is() -> None:
    share = replace(SHARE, out=3 * GIB)
    turn = CardTurn(since=88.0, behind=("v0",), due=130.0)
    waits = listed(1, devices=(share,), residency="waiting", turn=turn)
    seen = Snapshot(100.0, Devices(devices=(CARD,), policy="fifo"), (listed(0), waits))
    lines = [line.text for line in view(seen, Controls(), "12:00:00", (120, 10), "#+ ")]
    assert lines[3:7] == [
        "CONTAINER  IMAGE  GPU  LIMIT  GRANT  USAGE  ON CARD   OUT  STATE           SINCE",
        "c0         image    0  12GiB  12GiB   8GiB                 running            1m",
        "c1         image    0  12GiB  12GiB   8GiB     5GiB  3GiB  waits for turn     1m",
        "  waits for its card turn since 12s, behind c0, gets it within 30s: 3GiB on the host, 5GiB on GPU 0",
    ]


def test_a_narrow_terminal_keeps_who_waits_for_what_behind_whom() -> None:
    assert [line.text for line in view(SEEN, Controls(), "12:00:00", (40, 12))][:8] == [
        "12:00:00  2 containers, 1 waiting",
        "GPU 0  [████▒▒  ] 8GiB of 16GiB",
        "",
        "CONTAINER  GPU  USAGE  STATE    SINCE",
        "c0           0   8GiB  running     1m",
        "c1           0   8GiB  waiting     1m",
        "  waits 10s for 1GiB on GPU 0: not",
        "    enough is free, held by c0",
    ]


def test_keys_sort_hold_and_scroll() -> None:
    controls = Controls().press("s", 5).press("s", 5)
    assert controls == Controls("waiting first")
    lines = view(SEEN, controls.press(" ", 5), "t", (80, 10))
    assert (lines[0].text[-4:], lines[4].text[:2], lines[-1].text[-13:]) == ("HELD", "c1", "waiting first")
    assert Controls().press("up", 5) == Controls()
    assert Controls().press("page down", 5).press("k", 5) == Controls(scroll=4)
    assert Controls().press("x", 5) == Controls()


def test_a_long_list_is_scrolled_and_never_longer_than_the_screen() -> None:
    many = Snapshot(100.0, SEEN.devices, tuple(listed(number) for number in range(50)))
    for scroll, first in ((0, "c0"), (3, "c3"), (1000, "c46")):
        lines = view(many, Controls(scroll=scroll), "t", (80, 9))
        assert (len(lines), lines[4].text.split()[0]) == (9, first)
    assert view(many, Controls(), "t", (80, 9))[-1].text.endswith("46 more")


@pytest.mark.parametrize("size", [(20, 4), (80, 24), (300, 80)])
def test_no_line_is_wider_than_the_terminal(size: tuple[int, int]) -> None:
    assert max(len(line.text) for line in view(SEEN, Controls(), "t", size)) <= size[0]


def test_without_a_terminal_it_says_what_to_type() -> None:
    result = CliRunner().invoke(main, ["top"])
    assert (result.exit_code, "convgpu ps --json" in result.stderr) == (2, True)


def test_on_a_terminal_it_shows_sorts_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(follower)
    with running_daemon(tmp_path / "d") as daemon:
        daemon.container("first", memory="2g")
        command = [Path(sys.executable).parent / "convgpu", "top", "--directory", str(daemon.directory)]
        environment = {**os.environ, "TERM": "xterm", "DOCKER_HOST": "unix:///nowhere"}
        process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
        read_until(leader, r"first .* 2GiB")
        os.write(leader, b"s")
        read_until(leader, r"by usage")
        os.write(leader, b"q")
        assert process.wait(timeout=120) == 0
    after = termios.tcgetattr(follower)
    os.close(leader)
    os.close(follower)
    assert after == before


def read_until(descriptor: int, pattern: str) -> None:
    """Read what is shown until it has the pattern, with a bound."""
    deadline, shown = time.monotonic() + 20, ""
    while not re.search(pattern, shown):
        assert time.monotonic() < deadline, shown
        if select.select([descriptor], [], [], 1.0)[0]:
            shown += os.read(descriptor, 1 << 16).decode(errors="replace")
