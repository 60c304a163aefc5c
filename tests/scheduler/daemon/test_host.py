"""What the kernel tells about real processes."""

import subprocess
import sys
from pathlib import Path

from daemon import wait_until

from convgpu.daemon.host import is_alive

# The first thread ends (pthread_exit) and another goes on until stdin ends.
_PROGRAM = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_for_as_long_as_any_of_its_threads() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z", "its first thread ends")
        alive = is_alive(process.pid)
        process.kill()
        assert alive
        wait_until(lambda: not is_alive(process.pid), "it ends")
