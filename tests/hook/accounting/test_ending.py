"""What a process holds counts in its container's limit until it has ended, and not only until its socket closes."""

import os
import subprocess
from collections.abc import Callable

from daemon import DRIVER, Daemon, wait_until
from hooked_program import OUT_OF_MEMORY, SUCCESS, Program
from scripted_session import GIB, MIB

from convgpu.daemon.system.procfs import has_ended

Join = Callable[..., Program]
CONTEXT = 526 * MIB  # of the simulated driver


def hold_slowly(daemon: Daemon, folder: str, slow: int) -> subprocess.Popen[bytes]:
    """Start a program that takes 3 GiB, and has that descriptor.

    The kernel closes a process's files one after the other, the last one first; the hook's are the highest.
    """
    environment = os.environ | {"LD_LIBRARY_PATH": f"{folder}/driver", "LD_PRELOAD": f"{folder}/libconvgpu.so"}
    command = [str(DRIVER / "gpu-hold"), "--hold", "1000", "3g"]
    program = subprocess.Popen(command, env=environment, pass_fds=[slow], stdout=subprocess.DEVNULL)
    wait_until(lambda: daemon.state("a")["devices"][0]["usage"] == 3 * GIB + 2 * CONTEXT, "it holds 3 GiB")  # type: ignore[index]
    return program


def test_the_next_call_in_its_container_waits_for_the_end_of_a_process(daemon: Daemon, join: Join) -> None:
    folder = daemon.container("a", memory=str(4 * GIB + 2 * CONTEXT))
    sibling = join(folder)
    slow = os.memfd_create("slow")
    os.posix_fallocate(slow, 0, 2 * GIB)  # which takes the kernel a tenth of a second to free
    holder = hold_slowly(daemon, str(folder), slow)
    os.close(slow)
    process = os.pidfd_open(holder.pid)
    try:
        holder.kill()
        while (result := sibling.call(f"alloc {3 * GIB}")).code == OUT_OF_MEMORY:
            pass
        assert result.code == SUCCESS
        assert has_ended(process)
    finally:
        holder.wait()
        os.close(process)
