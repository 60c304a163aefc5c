"""A host with simulated devices in a directory of its own, and processes that use them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

FAKES = Path(__file__).parent
BUILD = FAKES / "build"
MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 526 * MIB
SIZE = 4 * GIB  # of each device of the fixture `host`
T = TypeVar("T")
TIMEOUT = 120.0  # seconds after which something that should have happened counts as missing


def until(look: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """Look again and again until it is as wanted; the last look if it never is."""
    deadline = time.monotonic() + TIMEOUT
    while not wanted(seen := look()) and time.monotonic() < deadline:
        time.sleep(0.001)  # yielding instead is as quick, and takes a core from the process that is waited for
    return seen


class CudaProcess:
    """A Python process that makes CUDA calls one by one."""

    def __init__(self, directory: Path, environment: dict[str, str], prefix: list[str]) -> None:
        worker = [sys.executable, str(FAKES / "cuda_process.py"), str(directory)]
        self.popen = subprocess.Popen(
            prefix + worker,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def __call__(self, *call: object) -> list:
        """Return the call's result and its outputs."""
        self.ask(*call)
        return self.answer()

    def ask(self, *call: object) -> None:
        """Start a call, without waiting for its answer."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(call) + "\n")
        self.popen.stdin.flush()

    def answer(self) -> list:
        assert self.popen.stdout is not None
        return json.loads(self.popen.stdout.readline())

    def start(self, device: int = 0) -> int:
        """Initialise and make the device's primary context current; return its handle."""
        assert self("cuInit", 0) == [0]
        result, context = self("cuDevicePrimaryCtxRetain", device)
        assert result == 0
        assert self("cuCtxSetCurrent", context) == [0]
        return context

    def allocate(self, size: int) -> int:
        """Allocate, which must succeed; return the address."""
        result, address = self("cuMemAlloc_v2", size)
        assert result == 0
        return address

    def free_memory(self) -> int:
        result, free, _ = self("cuMemGetInfo_v2")
        assert result == 0
        return free

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()


class GpuHost:
    """A directory as the daemon lays it out: both libraries, `devices` and an empty `state`."""

    def __init__(self, directory: Path, sizes: list[int], **settings: int) -> None:
        self.directory = directory
        self.uuids = [f"GPU-0badcafe-0000-4000-8000-{index + 1:012x}" for index in range(len(sizes))]
        self._processes: list[subprocess.Popen[str]] = []
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(BUILD / library, directory / library)
        rows = [f"{uuid} {size}" for uuid, size in zip(self.uuids, sizes, strict=True)]
        rows += [f"{key}={value}" for key, value in settings.items()]
        (directory / "devices").write_text("\n".join(rows) + "\n")
        (directory / "state").touch()

    def container(self, name: str) -> Path:
        """Lay out a container's directory, whose files are hard links to the host's."""
        directory = self.directory / name
        directory.mkdir()
        for file in ("libcuda.so.1", "libnvidia-ml.so.1", "devices", "state"):
            os.link(self.directory / file, directory / file)
        return directory

    def process(
        self, *, directory: Path | None = None, prefix: list[str] | None = None, **environment: str
    ) -> CudaProcess:
        """Start a process that loads the driver from the directory, behind the command `prefix`."""
        process = CudaProcess(directory or self.directory, environment, prefix or [])
        self._processes.append(process.popen)
        return process

    def hold(self, *arguments: str) -> subprocess.Popen[str]:
        """Start gpu-hold, its stdin and stdout piped."""
        popen = subprocess.Popen(
            [str(BUILD / "gpu-hold"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"LD_LIBRARY_PATH": str(self.directory)},
        )
        self._processes.append(popen)
        return popen

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
