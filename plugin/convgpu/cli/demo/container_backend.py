"""The demonstration on a Docker Engine: `docker run` as `convgpu run` starts it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final, Self

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.engine_documents import Plugin
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import PluginTransport, Scheduler
from convgpu.cli.demo import leftovers
from convgpu.cli.demo.backend import DemoProcess, Exited
from convgpu.cli.demo.scenario import DemoContainer
from convgpu.cli.run.docker_arguments import scan
from convgpu.cli.run.injection import Request
from convgpu.cli.run.preparation import prepare
from convgpu.cli.terminal.errors import Unavailable

IMAGE: Final = "convgpu/demo"
_END_STEP: Final = 0.2  # seconds between two attempts to remove a container that is being made
_END_STEPS: Final = 50
_HOLD: Final = "/usr/local/bin/gpu-hold"


class ContainerBackend:
    """See `DemoBackend`.

    Args:
        drivers: names that the plugin may have in the Engine; the first that can be used is.

    Raises:
        Unavailable: no Engine, no plugin, or no image.
    """

    def __init__(self, drivers: Sequence[str]) -> None:
        self._engine = Engine.connect(RequestsHttp)
        plugin = _first_plugin(self._engine, drivers)
        self._driver = plugin.name
        self.removed: Sequence[str] = leftovers.remove_from_engine(self._engine)
        self.scheduler = Scheduler(PluginTransport(RequestsHttp(plugin.socket)))
        self.description = f"containers of the image {IMAGE} with the plugin {plugin.name}"
        self._running: dict[str, DemoProcess] = {}
        self._containers: dict[str, DemoContainer] = {}
        self._volumes: dict[str, DemoContainer] = {}
        if self._engine.image(IMAGE) is None:
            raise Unavailable(
                f"the Docker Engine has no image {IMAGE}.\nBuild it, from a checkout, with: make demo   "
                "(or play with plain processes: convgpu demo --processes)"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            running.release()
            self._end(running.process)
            running.close()
        self._engine.remove_containers(list(self._containers))

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a `docker run` by removing its container, which may not be there yet."""
        for _ in range(_END_STEPS):
            if process.poll() is not None:
                return
            self._engine.remove_containers(list(self._containers))
            try:
                process.wait(_END_STEP)
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait()

    def start(self, container: DemoContainer) -> None:
        """See `DemoBackend`."""
        full_name = f"convgpu-demo-{os.getpid()}-{container.name.lower()}"
        # --rm: the Engine removes them also when we are killed; they end by themselves.
        options = ["--rm", "--name", full_name, "--label", f"{leftovers.LABEL}={leftovers.owner()}"]
        options += ["--network", "none", *(["-i"] if container.stays else [])]
        line = scan([*options, IMAGE, _HOLD, *container.arguments], {})
        suspend = "auto" if container.may_leave else None
        words, _ = prepare(line, Request(container.memory, None, self._driver, suspend=suspend), self._engine)
        self._containers[full_name] = container
        self._running[container.name] = DemoProcess(words, container)

    def release(self, container: DemoContainer) -> None:
        """See `DemoBackend`: the end of its standard input."""
        self._running[container.name].release()

    def volumes(self) -> Mapping[str, DemoContainer]:
        """See `DemoBackend`. Kept once seen; the Engine is asked only for what is missing."""
        if len(self._volumes) < len(self._containers):
            for volume, rows in self._engine.containers().items():
                for found in rows:
                    if found.name in self._containers and volume != found.id:
                        self._volumes[volume] = self._containers[found.name]
        return self._volumes

    def exited(self) -> Mapping[str, Exited]:
        """See `DemoBackend`."""
        found = {name: running.exited() for name, running in self._running.items()}
        return {name: exited for name, exited in found.items() if exited is not None}


def _first_plugin(engine: Engine, names: Sequence[str]) -> Plugin:
    for name in names[:-1]:
        try:
            return engine.plugin(name)
        except Unavailable:
            continue
    return engine.plugin(names[-1])
