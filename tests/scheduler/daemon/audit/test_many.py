"""Containers of many processes, each of which has a little past the hook; on the simulated driver."""

import time
from pathlib import Path

from daemon import CONTEXT, GIB, Daemon, Process, running_daemon, wait_until

from convgpu.core.audit.attribution import UNCOUNTED
from convgpu.protocol import messages as m

OPTIONS = ["--audit=100ms", "--overuse-after=300ms", "--overuse=stop"]
MIB = 1 << 20


def begin(folder: Path, count: int, lease: int, more: int, managed: int = 0) -> list[Process]:
    """Let processes lease and hold memory of a device, and more of it than they leased."""
    processes = [Process(folder) for _ in range(count)]
    for process in processes:
        process.hello()
        assert process.ask(m.Allocate(0, lease, "cuMemAlloc")) == m.Accepted(lease, 0)
    for process in processes:
        process.hold(lease + more, managed=managed)
    return processes


def share(daemon: Daemon, name: str) -> dict[str, int]:
    return daemon.state(name)["devices"][0]


def within_two_seconds(daemon: Daemon) -> set[int]:
    """Return what a container was charged with."""
    figures, begun = set(), time.monotonic()

    def has_looked() -> bool:
        figures.add(share(daemon, "a")["usage"])
        return time.monotonic() - begun > 2.0

    wait_until(has_looked, "two seconds have passed")
    return figures


def stopped(daemon: Daemon) -> list[tuple[object, object]]:
    return [(event["container"], event["reason"]) for event in daemon.events("stopped")]


def test_what_ten_have_past_the_hook_is_charged_but_for_an_eighth_of_their_leases(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        folder, usage = daemon.container("a", memory="9g"), 10 * (CONTEXT + 250 * MIB) - 10 * CONTEXT // 8
        begin(folder, 10, CONTEXT, 250 * MIB)
        wait_until(lambda: share(daemon, "a")["usage"] == usage, "it is charged")
        assert within_two_seconds(daemon) == {usage}
        neighbour = Process(daemon.container("b", memory="15g"))
        neighbour.hello()
        neighbour.allocate(16 * GIB - usage + 2 * MIB)  # as much as nobody has
        wait_until(lambda: daemon.state("b")["state"] == "waiting", "it waits")
        assert stopped(daemon) == []


def test_ten_above_their_limit_are_ended(tmp_path: Path) -> None:
    """What the stranger took: 7.8 GiB with a limit of 6."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        begin(daemon.container("a", memory="6g"), 10, CONTEXT, 250 * MIB)
        wait_until(lambda: stopped(daemon) == [("a", "overuse")], "they are ended")


def test_a_limit_of_next_to_nothing_is_none_of_what_libraries_take(tmp_path: Path) -> None:
    """What a stranger took: 250 MiB in each of 66 containers with a limit of 1 KiB, before a context was measured."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        process = Process(daemon.container("a", memory="1k"))
        process.hello()
        process.hold(250 * MIB)
        wait_until(lambda: stopped(daemon) == [("a", "overuse")], "it is ended")


def test_managed_memory_of_seven_is_tolerated_together_with_the_other(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        begin(daemon.container("a", memory="9g"), 7, CONTEXT, 244 * MIB, 244 * MIB)
        usage = 7 * (CONTEXT + 488 * MIB) - UNCOUNTED
        wait_until(lambda: share(daemon, "a")["usage"] == usage, "it is charged")
        assert within_two_seconds(daemon) == {usage}
        assert stopped(daemon) == []


def test_programs_that_take_the_whole_limit_together_are_neither_charged_nor_ended(tmp_path: Path) -> None:
    """As PyTorch before the hook has charged what its first launches took: 92 MiB beyond what it leased."""
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon:
        begin(daemon.container("a", memory="8g"), 8, GIB, 92 * MIB)
        wait_until(lambda: share(daemon, "a")["seen"] == 8 * (GIB + 92 * MIB), "it is seen")
        assert within_two_seconds(daemon) == {8 * GIB}
        assert stopped(daemon) == []
