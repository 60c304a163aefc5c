"""A device whose whole capacity is granted is not overrun: who cannot be served is told so by the limit."""

from collections.abc import Callable

from daemon import GIB, Daemon
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program

Join = Callable[..., Program]
MIB = 1 << 20
CONTEXT = 526 * MIB
BESIDE = 9_227_469
"""8.8 MiB: what a process on an H200 takes of the device, and NVML counts for nobody."""
PROCESSES = 20


def test_what_the_driver_counts_for_nobody_is_in_everybodys_limit(daemon: Daemon, join: Join) -> None:
    with (daemon.directory / "driver/devices").open("a") as devices:
        devices.write(f"process_size={BESIDE}\n")
    limit = 16 * GIB // PROCESSES
    most = (limit - CONTEXT - BESIDE) // (2 * MIB) * 2 * MIB
    programs = [join(daemon.container(f"c{number}", memory=str(limit))) for number in range(PROCESSES)]
    assert [program.call(f"alloc {most}").code for program in programs] == [SUCCESS] * PROCESSES
    assert [program.call(f"alloc {2 * MIB}").code for program in programs] == [OUT_OF_MEMORY] * PROCESSES
    usage = [daemon.state(f"c{number}")["devices"][0]["usage"] for number in range(PROCESSES)]
    assert usage == [CONTEXT + BESIDE + most] * PROCESSES
    for program in programs:
        [said] = program.end()
        assert "rejected: it would exceed the limit" in said
