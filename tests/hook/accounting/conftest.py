"""Memory that a program of no container holds."""

from collections.abc import Callable

import pytest
from hooked_program import SUCCESS, Program
from scripted_session import GIB


@pytest.fixture
def holder(start: Callable[..., Program]) -> Program:
    """A process of no container, with 10 GiB of the device (and its context)."""
    program = start(LD_PRELOAD="")
    assert program.call("init 0").code == SUCCESS
    assert program.call(f"use {program.call('retain 0').number}").code == SUCCESS
    assert program.call(f"alloc {10 * GIB}").code == SUCCESS
    return program
