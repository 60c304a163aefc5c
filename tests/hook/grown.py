"""What contexts of a container of the simulated host grew: by the account, and by the driver."""

from daemon import Daemon, wait_until
from hooked_program import SUCCESS, Program
from scripted_session import MIB

CONTEXT = 526 * MIB
"""What a context takes on a device of `daemon`."""
LOCAL = 60 << 10
"""Bytes a thread of a kernel that takes 15.2 GiB."""
WORK = 2 * MIB
"""In such steps executable graphs, and green contexts, take memory of the simulated device."""
STACKS = 132 * 2048
"""Threads that the simulated device can run at a time."""


def usage(daemon: Daemon, name: str = "a") -> int:
    """What the container is charged with."""
    return int(daemon.state(name)["devices"][0]["usage"])


def seen(daemon: Daemon, size: int, name: str = "a") -> None:
    """Wait until the driver counts that much for the container."""
    wait_until(lambda: daemon.state(name)["devices"][0]["seen"] == size, f"NVML counts {size} bytes")


def function_of(program: Program, image: str, library: bool = False) -> int:
    """Load a module of this image; return a function of it."""
    loaded = program.call(f"{'library' if library else 'module'} {image}").number
    return program.call(f"{'kernel' if library else 'function'} {loaded}").number


def graph_of(program: Program, function: int, count: int) -> int:
    """Return a graph of so many kernels, none of which waits for another."""
    graph = program.call("graph").number
    for _kernel in range(count):
        assert program.call(f"addkernel {graph} {function} 0").code == SUCCESS
    return graph
