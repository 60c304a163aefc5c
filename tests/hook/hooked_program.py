"""A real process under the hook, driven line by line: `src/program.c` behind one of its lookups."""

import os
import platform
import queue
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120.0  # seconds; only a failure takes as long
THREADS = 8
"""As many as `src/program.c` has."""

FUTEX = f"{98 if platform.machine() == 'aarch64' else 202} "
"""How a line of /proc/PID/task/TID/syscall begins in a futex call."""

SUCCESS = 0
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NOT_INITIALIZED = 3
INVALID_DEVICE = 101
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
NOT_FOUND = 500
ILLEGAL_ADDRESS = 700
NOT_SUPPORTED = 801
SYSTEM_NOT_READY = 802


@dataclass(frozen=True)
class Result:
    """What a command returned: the CUresult, and what it wrote."""

    code: int
    values: tuple[str, ...]

    @property
    def number(self) -> int:
        return int(self.values[0], 0)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(value, 0) for value in self.values)


class Program:
    """One process; each of its threads runs its commands in order."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # All of them at once: made on demand by two threads, one could be replaced with its result inside.
        self._results: list[queue.Queue[Result]] = [queue.Queue() for _thread in range(THREADS)]
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=read) for read in (self._read_results, self._read_errors)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read_results(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            thread, code, *values = line.split()
            self._results[int(thread)].put(Result(int(code), tuple(values)))

    def _read_errors(self) -> None:
        assert self._process.stderr
        self._errors.extend(self._process.stderr)

    def begin(self, command: str, thread: int = 0) -> None:
        """Let a thread begin a command."""
        assert self._process.stdin
        self._process.stdin.write(f"{thread} {command}\n")
        self._process.stdin.flush()

    def result(self, thread: int = 0) -> Result:
        """Wait for the next result of a thread."""
        try:
            return self._results[thread].get(timeout=TIMEOUT)
        except queue.Empty:
            raise AssertionError(f"no answer within {TIMEOUT:g} s; {self._where()}") from None

    def _where(self) -> str:
        """What each thread of the process is doing, as the kernel sees it, and what it said on stderr."""
        said = [f"exit status {self._process.poll()}", *self._errors]
        for task in Path(f"/proc/{self.pid}/task").glob("*"):
            said += [
                f"{task.name} {name}: {(task / name).read_text().strip()}" for name in ("comm", "wchan", "syscall")
            ]
        return "; ".join(said)

    def returned(self, thread: int = 0) -> bool:
        """Whether a result is there already."""
        return not self._results[thread].empty()

    def call(self, command: str, thread: int = 0) -> Result:
        self.begin(command, thread)
        return self.result(thread)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def threads(self) -> list[str]:
        """Names of the threads of the process, sorted."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sorted((task / "comm").read_text().strip() for task in tasks.iterdir())

    def waits(self, thread: str) -> bool:
        """Whether the thread of this name stands in a futex."""
        tasks = [
            task for task in Path(f"/proc/{self.pid}/task").iterdir() if (task / "comm").read_text() == f"{thread}\n"
        ]
        return [(task / "syscall").read_text().startswith(FUTEX) for task in tasks] == [True]

    def in_futex(self) -> int:
        """How many of its own threads stand in a futex; those without a command read their next one."""
        tasks = Path(f"/proc/{self.pid}/task")
        own = [task for task in tasks.iterdir() if (task / "comm").read_text().strip() == "program"]
        return sum((task / "syscall").read_text().startswith(FUTEX) for task in own)

    def stands_in_futex(self, count: int) -> bool:
        """Whether so many of its threads stand in a futex for a second.

        Not in a lock for a moment: a busy machine leaves who holds that waiting, for longer than many looks take.
        """
        for _ in range(100):
            if self.in_futex() != count:
                return False
            time.sleep(0.01)
        return True

    def wait_in_futex(self, count: int = 1) -> None:
        """Wait until so many of its threads stand in a futex."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if self.in_futex() >= count:
                return
            os.sched_yield()
        raise AssertionError(f"no {count} threads wait; {self._where()}")

    def sockets(self) -> int:
        links = (str(entry.readlink()) for entry in Path(f"/proc/{self.pid}/fd").iterdir())
        return sum(link.startswith("socket:") for link in links)

    def end(self) -> list[str]:
        """Close stdin, wait for the end, and return what was written to stderr."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=TIMEOUT)
        self._join()
        return self._errors

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=TIMEOUT)
        self._join()

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(timeout=TIMEOUT)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            if not stream.closed:
                stream.close()
