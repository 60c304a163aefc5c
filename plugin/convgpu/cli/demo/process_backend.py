"""The demonstration without Docker: a process for each container, with daemon, hook and simulated driver."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from convgpu.cli.connect.scheduler import DaemonTransport, Scheduler
from convgpu.cli.demo import leftovers
from convgpu.cli.demo.backend import DemoProcess, Exited
from convgpu.cli.demo.scenario import DemoContainer
from convgpu.cli.terminal.errors import Unavailable
from convgpu.protocol.layout import DRIVER_FOLDER, LIBRARY_FILE
from convgpu.protocol.requests import CreateVolume, ListDevices, MountVolume, RemoveVolume, UnmountVolume

_NATIVE: Final = Path(__file__).resolve().parents[2] / "native"  # of an installed package
_CHECKOUT: Final = Path(__file__).resolve().parents[4]
_DEVICES: Final = "simulated:16GiB"
_SMALL: Final = "simulated:4GiB"  # what leaves takes as much memory of this host
_START_TIME: Final = 10.0  # seconds for a daemon to answer
_STOP_TIME: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class ProcessBackend:
    """See `DemoBackend`.

    Args:
        directory: of a daemon that runs; None starts one with a simulated device, and ends it again.
        may_leave: that one promises its device twice, so that memory leaves it.

    Raises:
        Unavailable: something that has to be built is missing, or no daemon answers.
    """

    def __init__(self, directory: Path | None, *, may_leave: bool = False) -> None:
        self._stack = ExitStack()
        self.removed: Sequence[str] = leftovers.remove_folders()
        self._driver = _built("CONVGPU_SIMULATED_DRIVER", "simulated", "tests/fakes/build", "gpu-hold")
        self._running: dict[str, DemoProcess] = {}
        self._volumes: dict[str, DemoContainer] = {}
        self._mounted: set[str] = set()
        if directory is None:
            devices = _SMALL if may_leave else _DEVICES
            self.description = f"plain processes and a scheduler of their own ({devices})"
            directory = self._stack.enter_context(_daemon(self._driver, devices, may_leave=may_leave))
        else:
            self.description = f"plain processes and the scheduler in {directory}"
        self._transport = DaemonTransport(directory, _START_TIME)
        self.scheduler = Scheduler(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for running in self._running.values():
                running.process.kill()
                running.process.wait()
                running.close()
            self._unmount_ended()
            for volume in self._volumes:
                self._transport.ask(RemoveVolume(volume))

    def start(self, container: DemoContainer) -> None:
        """See `DemoBackend`."""
        volume = f"demo-{os.getpid()}-{container.name.lower()}"
        leaves = {"suspend": "auto"} if container.may_leave else {}
        self._transport.ask(CreateVolume(volume, {"memory": container.memory, **leaves}))
        self._volumes[volume] = container
        mountpoint = Path(self._transport.ask(MountVolume(volume, volume)).mountpoint)
        self._mounted.add(volume)
        environment = {**os.environ, "LD_PRELOAD": str(mountpoint / LIBRARY_FILE)}
        if self.scheduler.devices().volume_library_path is not None:
            environment["LD_LIBRARY_PATH"] = str(mountpoint / DRIVER_FOLDER)
        command = [str(self._driver / "gpu-hold"), *container.arguments]
        self._running[container.name] = DemoProcess(command, container, environment, ends_with_us(signal.SIGKILL))

    def release(self, container: DemoContainer) -> None:
        """See `DemoBackend`: the end of its standard input."""
        self._running[container.name].release()

    def volumes(self) -> Mapping[str, DemoContainer]:
        """See `DemoBackend`."""
        return self._volumes

    def exited(self) -> Mapping[str, Exited]:
        """See `DemoBackend`. Unmounts the volumes of exited containers, as the Engine does."""
        self._unmount_ended()
        found = {name: running.exited() for name, running in self._running.items()}
        return {name: exited for name, exited in found.items() if exited is not None}

    def _unmount_ended(self) -> None:
        for volume in sorted(self._mounted):
            running = self._running.get(self._volumes[volume].name)
            if running is None or running.process.poll() is not None:
                self._transport.ask(UnmountVolume(volume, volume))
                self._mounted.discard(volume)


def _built(variable: str, installed: str, built: str, file: str) -> Path:
    """Return where `file` lies: the folder that the variable names, the installed package's, or the checkout's."""
    given = os.environ.get(variable)
    folders = [Path(given)] if given else [_NATIVE / installed, _CHECKOUT / built]
    for folder in folders:
        if (folder / file).exists():
            return folder
    raise Unavailable(
        f"{folders[-1] / file} is missing: this package was built without a compiler, or `make build` has not run in "
        f"this checkout.\nBuild it where gcc and make are, or name the folder with {variable}."
    )


def ends_with_us(number: int) -> Callable[[], None]:
    """Return what a child process calls to get a signal when we end, however that is."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # we ended before
            os._exit(1)

    return ask


@contextmanager
def _daemon(driver: Path, devices: str, *, may_leave: bool) -> Iterator[Path]:
    """Run a scheduler with one simulated device in a directory of its own; yield the directory."""
    libraries = _built("CONVGPU_LIBRARIES", "", "hook/build", LIBRARY_FILE)
    with tempfile.TemporaryDirectory(prefix=leftovers.FOLDER_PREFIX) as name:
        directory = Path(name)
        command = [
            *(sys.executable, "-m", "convgpu.daemon", "--devices", devices, "--directory", name),
            *("--libraries", str(libraries), "--simulated-driver", str(driver)),
        ]
        if may_leave:
            porter = _built("CONVGPU_PORTER_FOLDER", "", "porter/build", "convgpu-porter") / "convgpu-porter"
            command += ["--porter", str(porter), "--oversubscribe", "2"]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ends_with_us(signal.SIGTERM),  # noqa: PLW1509 - we have no threads
            )
        try:
            DaemonTransport(directory, _START_TIME).ask(ListDevices())
        except Unavailable as error:
            process.kill()
            said = (directory / "log").read_text(encoding="utf-8", errors="replace").strip()
            raise Unavailable(f"the scheduler did not start: {said or error}") from error
        else:
            yield directory
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIME)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
