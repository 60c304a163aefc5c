"""A stream takes queues of the device, which the driver keeps when it is destroyed: 1,000 take 512 MiB of a card."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from grown import CONTEXT, WORK, seen, usage
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

Join = Callable[..., Program]
FIRST = 8
"""So many lie in what the context took."""


@pytest.mark.parametrize("way", ["stream", "prioritystream", "greenstream"])
def test_streams_are_charged_and_at_the_limit_refused(daemon: Daemon, join: Join, way: str) -> None:
    program = join(daemon.container("a", memory="2g"))
    green = program.call("newgreen 0").number if way == "greenstream" else 0
    taken = CONTEXT + (WORK if green else 0)
    assert program.call(f"alloc {2 * GIB - taken - 6 * MIB}").code == SUCCESS
    made = [program.call(f"{way} {green}") for _stream in range(40)]
    assert [each.code for each in made[: FIRST + 12]] == [SUCCESS] * (FIRST + 12)
    assert {each.code for each in made[FIRST + 12 :]} == {OUT_OF_MEMORY}
    seen(daemon, 2 * GIB + WORK)  # one step, which the last one took and nobody can give back
    assert program.call("alloc 1").code == OUT_OF_MEMORY


def test_what_a_destroyed_stream_had_is_for_the_next(daemon: Daemon, join: Join) -> None:
    program = join(daemon.container("a", memory="2g"))
    for _round in range(3):
        made = [program.call("stream").number for _stream in range(20)]
        for stream in made:
            assert program.call(f"endstream {stream}").code == SUCCESS
        assert usage(daemon) == CONTEXT + 6 * MIB
    assert program.call("release 0").code == SUCCESS
    assert usage(daemon) == 0


@pytest.mark.parametrize("current", ["none", "another device's"])
def test_a_green_contexts_streams_are_its_devices(daemon: Daemon, join: Join, current: str) -> None:
    """Whatever is current: 400 passed a full limit."""
    program = join(daemon.container("a", memory="2g"))
    green = program.call("newgreen 0").number
    assert program.call(f"alloc {2 * GIB - usage(daemon)}").code == SUCCESS
    context = 0 if current == "none" else program.call("retain 1").number
    assert program.call(f"use {context}").code == SUCCESS
    answers = [program.call(f"greenstream {green}").code for _stream in range(FIRST + 40)]
    assert answers[-1] == OUT_OF_MEMORY
    seen(daemon, 2 * GIB + WORK)
