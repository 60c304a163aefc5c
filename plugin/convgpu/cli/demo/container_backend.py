"""The demonstration on a Docker Engine: each part is a container, started as `convgpu run` starts it."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Final, Self

from convgpu.cli.connect.engine import Engine, Plugin
from convgpu.cli.connect.scheduler import PluginDoor, Scheduler
from convgpu.cli.demo.backend import Ended
from convgpu.cli.demo.scenario import Part
from convgpu.cli.run.command import prepare
from convgpu.cli.run.docker_arguments import scan
from convgpu.cli.run.injection import Request
from convgpu.cli.terminal.errors import Unavailable

IMAGE: Final = "convgpu/demo"
_END_STEP: Final = 0.2  # seconds between two attempts to remove a container that is being made
_END_STEPS: Final = 50
_HOLD: Final = "/usr/local/bin/gpu-hold"


class ContainerStage:
    """See `stage.Stage`.

    Args:
        drivers: names that the plugin may have in the Engine; the first that can be used is.

    Raises:
        Unavailable: no Engine, no plugin, or no image.
    """

    def __init__(self, drivers: Sequence[str]) -> None:
        self._engine = Engine.connect()
        plugin = _first_plugin(self._engine, drivers)
        self._driver = plugin.name
        self.scheduler = Scheduler(PluginDoor(plugin.socket))
        self.words = f"containers of the image {IMAGE} with the plugin {plugin.name}"
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._parts: dict[str, Part] = {}
        self._volumes: dict[str, Part] = {}
        if self._engine.image(IMAGE) is None:
            raise Unavailable(
                f"the Docker Engine has no image {IMAGE}.\nBuild it, from a checkout, with: make demo   "
                "(or play with plain processes: convgpu demo --processes)"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, output in self._running.values():
            if process.stdin is not None:
                process.stdin.close()
            self._end(process)
            output.close()
        self._engine.remove_containers(list(self._parts))

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a `docker run` by removing its container, which may not be there yet."""
        for _ in range(_END_STEPS):
            if process.poll() is not None:
                return
            self._engine.remove_containers(list(self._parts))
            try:
                process.wait(_END_STEP)
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()

    def start(self, part: Part) -> None:
        """See `stage.Stage`."""
        container = f"convgpu-demo-{os.getpid()}-{part.name.lower()}"
        options = ["--name", container, "--network", "none", *(["-i"] if part.stays else [])]
        line = scan([*options, IMAGE, _HOLD, *part.arguments], {})
        words, _ = prepare(line, Request(part.memory, None, self._driver), self._engine)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._parts[container] = part
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE if part.stays else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us: we end the containers
        )
        self._running[part.name] = (process, output)

    def release(self, part: Part) -> None:
        """See `stage.Stage`: the end of its standard input."""
        stdin = self._running[part.name][0].stdin
        if stdin is not None:
            stdin.close()

    def volumes(self) -> Mapping[str, Part]:
        """See `stage.Stage`. Kept once seen; the Engine is asked only for what is missing."""
        if len(self._volumes) < len(self._parts):
            for volume, containers in self._engine.containers().items():
                for found in containers:
                    if found.name in self._parts and volume != found.id:
                        self._volumes[volume] = self._parts[found.name]
        return self._volumes

    def ended(self) -> Mapping[str, Ended]:
        """See `stage.Stage`."""
        return {
            name: Ended(process.returncode, _text(output))
            for name, (process, output) in self._running.items()
            if process.poll() is not None
        }


def _first_plugin(engine: Engine, names: Sequence[str]) -> Plugin:
    for name in names[:-1]:
        try:
            return engine.plugin(name)
        except Unavailable:
            continue
    return engine.plugin(names[-1])


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace").strip()
