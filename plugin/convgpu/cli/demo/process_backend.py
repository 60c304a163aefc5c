"""The demonstration without Docker: each part is a process; daemon, hook and simulated driver are the same."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final, Self

from convgpu.cli.connect.scheduler import DaemonDoor, Scheduler
from convgpu.cli.demo.backend import Ended
from convgpu.cli.demo.scenario import Part
from convgpu.cli.terminal.errors import Unavailable

_CHECKOUT: Final = Path(__file__).resolve().parents[4]
_DEVICES: Final = "simulated:16GiB"
_START_TIME: Final = 10.0  # seconds for a daemon to answer
_STOP_TIME: Final = 5.0


class ProcessStage:
    """See `stage.Stage`.

    Args:
        directory: of a daemon that runs; None starts one with a simulated device, and ends it again.

    Raises:
        Unavailable: something that has to be built is missing, or no daemon answers.
    """

    def __init__(self, directory: Path | None) -> None:
        self._stack = ExitStack()
        self._driver = _built("CONVGPU_SIMULATED_DRIVER", "tests/fakes/build", "gpu-hold")
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._volumes: dict[str, Part] = {}
        self._mounted: set[str] = set()
        if directory is None:
            self.words = f"plain processes and a scheduler of their own ({_DEVICES})"
            directory = self._stack.enter_context(_daemon(self._driver))
        else:
            self.words = f"plain processes and the scheduler in {directory}"
        self._door = DaemonDoor(directory, _START_TIME)
        self.scheduler = Scheduler(self._door)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for process, output in self._running.values():
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
                output.close()
            self._unmount_ended()
            for volume in self._volumes:
                self._door.ask("remove", name=volume)

    def start(self, part: Part) -> None:
        """See `stage.Stage`."""
        volume = f"demo-{os.getpid()}-{part.name.lower()}"
        self._door.ask("create", name=volume, options={"memory": part.memory})
        self._volumes[volume] = part
        answer = self._door.ask("mount", name=volume, id=volume)
        self._mounted.add(volume)
        mountpoint = Path(str(answer["mountpoint"])) if isinstance(answer, dict) else Path()
        environment = {**os.environ, "LD_PRELOAD": str(mountpoint / "libconvgpu.so")}
        if self.scheduler.devices().volume_library_path is not None:
            environment["LD_LIBRARY_PATH"] = str(mountpoint / "driver")
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        process = subprocess.Popen(
            [self._driver / "gpu-hold", *part.arguments],
            env=environment,
            stdin=subprocess.PIPE if part.stays else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we end the processes
        )
        self._running[part.name] = (process, output)

    def release(self, part: Part) -> None:
        """See `stage.Stage`: the end of its standard input."""
        stdin = self._running[part.name][0].stdin
        if stdin is not None:
            stdin.close()

    def volumes(self) -> Mapping[str, Part]:
        """See `stage.Stage`."""
        return self._volumes

    def ended(self) -> Mapping[str, Ended]:
        """See `stage.Stage`. As the Engine does, unmounts what is over."""
        self._unmount_ended()
        return {
            name: Ended(process.returncode, _text(output))
            for name, (process, output) in self._running.items()
            if process.returncode is not None
        }

    def _unmount_ended(self) -> None:
        for volume in sorted(self._mounted):
            running = self._running.get(self._volumes[volume].name)
            if running is None or running[0].poll() is not None:
                self._door.ask("unmount", name=volume, id=volume)
                self._mounted.discard(volume)


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()


def _built(variable: str, folder: str, file: str) -> Path:
    """Return where `file` lies: the folder that the variable names, or the checkout's own."""
    found = Path(os.environ.get(variable) or _CHECKOUT / folder)
    if not (found / file).exists():
        raise Unavailable(
            f"{found / file} is missing: --processes needs a checkout in which `make` has built the hook and the "
            f"simulated driver.\nRun make there, or name the folder with {variable}."
        )
    return found


@contextmanager
def _daemon(driver: Path) -> Iterator[Path]:
    """Run a scheduler with one simulated device in a directory of its own; yield the directory."""
    libraries = _built("CONVGPU_LIBRARIES", "hook/build", "libconvgpu.so")
    with tempfile.TemporaryDirectory(prefix="convgpu-demo-") as name:
        directory = Path(name)
        command = [
            *(sys.executable, "-m", "convgpu.daemon", "--devices", _DEVICES, "--directory", name),
            *("--libraries", str(libraries), "--simulated-driver", str(driver)),
        ]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            DaemonDoor(directory, _START_TIME).ask("devices")
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
