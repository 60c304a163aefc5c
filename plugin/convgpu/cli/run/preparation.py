"""From a line of `convgpu run` to the docker command, by questions to the Engine and the plugin."""

from __future__ import annotations

import os

from convgpu.cli.run import gpu_access
from convgpu.cli.run.docker_arguments import UsageError
from convgpu.cli.run.injection import SIMULATED, Surroundings, docker_words, explain
from convgpu.cli.run.probed_images import is_occupied
from convgpu.cli.terminal.person import person
from convgpu.protocol.layout import PRELOAD_FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final, NoReturn, Protocol

    from convgpu.cli.connect.engine_documents import Image, Plugin
    from convgpu.cli.connect.engine_endpoint import Endpoint
    from convgpu.cli.run.docker_arguments import CommandLine
    from convgpu.cli.run.injection import Request

    class AnEngine(Protocol):
        """An Engine as far as a line needs it: `connect.engine.Engine`, or the quick path's."""

        endpoint: Endpoint

        @property
        def version(self) -> str:
            """Its version."""

        @property
        def info(self) -> Mapping[str, Any]:
            """The document of `docker info`."""

        def plugin(self, name: str, /) -> Plugin:
            """Return the enabled plugin of this name."""

        def directory(self, plugin: Plugin, /) -> str:
            """Return where the plugin's /var/lib/convgpu lies."""

        def is_simulated(self, plugin: Plugin, /) -> bool | None:
            """Return whether the plugin's GPUs are simulated, None if it does not answer."""

        def image(self, name: str, /) -> Image | None:
            """Return the configuration of an image, None for one that is absent."""

        def image_has(self, image: str, path: str, /) -> bool:
            """Say whether an image has something at `path`."""


NO_DOCKER: Final = (
    "the program docker is not installed.\nInstall it: apt install docker-cli (before Debian 13: docker.io)"
)
_OLDEST: Final = (20, 10)  # Engine whose plugins and mounts we know


def execute(words: list[str]) -> NoReturn:
    """Replace this process by `docker`, which keeps its terminal, signals and exit code.

    Raises:
        Unavailable: there is no such program.
    """
    try:
        os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
    except FileNotFoundError as error:
        raise _unavailable(NO_DOCKER) from error


def prepare(
    line: CommandLine, request: Request, engine: AnEngine, *, probe: bool = True
) -> tuple[list[str], list[str]]:
    """Return the whole docker command for a scanned command line, and what was added to it in words.

    Args:
        line: of the user.
        request: of ConvGPU.
        engine: that runs it.
        probe: look into the image for files where the volume has to be, which takes a container.

    Raises:
        click.UsageError: the command line cannot work.
        Unavailable: no Engine, no plugin, no answer, no way to the GPUs.
    """
    plugin = engine.plugin(request.driver)
    check_version(engine)
    name = line.image[0]
    image = engine.image(name)
    around = Surroundings(
        access=find_access(engine, plugin, request),
        preload=f"{engine.directory(plugin)}/{PRELOAD_FILE}",
        docker=("docker", *engine.endpoint.flags),
        inherited=os.environ,
        env_files=[_read(path) for path in line.values("env-file")],
        image_environment=image.environment if image else (),
        image_volumes=image.volumes if image else (),
        occupied=probe and image is not None and is_occupied(engine, name, image),
        user=person(),
    )
    try:
        return docker_words(line, request, around), explain(line, request, around)
    except UsageError as error:
        import click  # only an error needs it

        raise click.UsageError(str(error)) from error


def check_version(engine: AnEngine) -> None:
    """Check the version of the Engine.

    Raises:
        Unavailable: it is too old.
    """
    text = engine.version
    parts = text.split(".")[:2]
    if all(part.isdecimal() for part in parts) and tuple(map(int, parts)) < _OLDEST:
        raise _unavailable(f"the Docker Engine is version {text}; ConvGPU needs 20.10 or newer.\nUpgrade the Engine.")


def find_access(engine: AnEngine, plugin: Plugin, request: Request) -> gpu_access.Access:
    """Return how a container of this Engine gets access to the GPUs.

    Raises:
        Unavailable: there is no way.
    """
    simulated = engine.is_simulated(plugin)
    if simulated is None:
        from convgpu.cli.connect.discovery import open_plugin  # explains why there is no answer

        simulated = open_plugin(plugin.socket).devices().volume_library_path is not None
    if simulated:
        return SIMULATED
    if engine.endpoint.path is not None and gpu_access.has_toolkit():  # without a look at the Engine, which takes long
        return gpu_access.by_toolkit(request.docker_gpus)
    host = None
    if engine.endpoint.path is not None and not gpu_access.has_runtime(engine.info):
        from convgpu.cli.run.host_gpus import inspect_host  # a host with NVIDIA's runtime does without

        host = inspect_host()
    try:
        return gpu_access.choose(engine.info, host, request.docker_gpus, request.devices)
    except gpu_access.NoAccess as error:
        raise _unavailable(str(error)) from error


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""  # docker itself says what is wrong with the file


def _unavailable(text: str) -> Exception:
    from convgpu.cli.terminal.errors import Unavailable  # brings click, which only an error needs

    return Unavailable(text)
