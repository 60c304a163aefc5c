"""The Docker Engine as the command line needs it: the plugin, the containers and the images."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

from convgpu.cli.errors import Unavailable

_SOCKETS = Path("/run/docker/plugins")  # fixed in the Engine, whatever its --exec-root is


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """A container as the Engine lists it."""

    id: str
    name: str
    image: str


@dataclass(frozen=True, slots=True)
class Image:
    """What an image brings along."""

    environment: tuple[str, ...]
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plugin:
    """The enabled ConvGPU plugin: its socket on the host, and its settings."""

    name: str
    socket: Path
    settings: Mapping[str, str]


class Engine:
    """One Engine, chosen by DOCKER_HOST and its relatives as for `docker`."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> "Engine":
        """Return the Engine, which has answered.

        Raises:
            Unavailable: none answers; the text names the next step.
        """
        try:
            return cls(docker.from_env())
        except DockerException as error:
            raise _explain(error) from error

    def plugin(self, name: str) -> Plugin:
        """Return the ConvGPU plugin that is called `name` in the Engine.

        Raises:
            Unavailable: it is not installed, or not enabled.
        """
        try:
            plugin = self._client.plugins.get(name)  # type: ignore[no-untyped-call]
            attributes: dict[str, Any] = plugin.attrs
        except NotFound as error:
            raise Unavailable(
                f"the Docker Engine has no plugin {name!r}.\nInstall it with: docker plugin install {name}   "
                "(from a checkout: make plugin), or name yours with --gpu-volume-driver."
            ) from error
        except DockerException as error:
            raise _explain(error) from error
        if not attributes.get("Enabled"):
            raise Unavailable(f"the plugin {name!r} is disabled.\nEnable it with: docker plugin enable {name}")
        interface = attributes["Config"]["Interface"]["Socket"]
        environment = (entry.partition("=") for entry in attributes["Settings"]["Env"] or ())
        settings = {key: value for key, _, value in environment}
        return Plugin(name, _SOCKETS / attributes["Id"] / interface, settings)

    def containers(self) -> dict[str, tuple[EngineContainer, ...]]:
        """Return the containers, running or not, that have each volume, by the volume's name."""
        try:
            listed = self._client.api.containers(all=True)
        except DockerException as error:
            raise _explain(error) from error
        found: dict[str, list[EngineContainer]] = defaultdict(list)
        for row in listed:
            container = EngineContainer(row["Id"], _name(row), row["Image"])
            for volume in {mount["Name"] for mount in row.get("Mounts") or () if mount.get("Name")}:
                found[volume].append(container)
        return {volume: tuple(containers) for volume, containers in found.items()}

    def image(self, name: str) -> Image | None:
        """Return what the image brings along, or None if the Engine does not have it."""
        try:
            config = self._client.images.get(name).attrs.get("Config") or {}
        except APIError:
            return None  # absent, or not a name: docker run says it better
        except DockerException as error:
            raise _explain(error) from error
        return Image(tuple(config.get("Env") or ()), tuple(config.get("Volumes") or ()))

    def image_has(self, image: str, path: str) -> bool:
        """Say whether an image has something at `path`.

        Only a container can be asked that; this one is never started, and removed again.
        """
        api = self._client.api
        try:
            container = api.create_container(image, command=["true"], network_disabled=True)["Id"]
        except DockerException:
            return False  # docker run says better what is wrong with the image
        try:
            stream, _stat = api.get_archive(container, path)
            stream.close()
        except DockerException:
            return False
        else:
            return True
        finally:
            self.remove_containers([container])

    def remove_containers(self, names: Sequence[str]) -> None:
        """Remove containers with their anonymous volumes, running or not; absent ones are no error."""
        for name in names:
            try:
                self._client.containers.get(name).remove(force=True, v=True)
            except NotFound:
                continue
            except DockerException as error:
                raise _explain(error) from error


def _name(row: Mapping[str, Any]) -> str:
    # A linked container has further names of the form /other/alias; its own has one slash.
    own = [name.lstrip("/") for name in row["Names"] or () if name.count("/") == 1]
    return own[0] if own else str(row["Id"])[:12]


def _explain(error: Exception) -> Unavailable:
    if isinstance(error, APIError):
        return Unavailable(f"the Docker Engine refused: {error.explanation or error}")
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PermissionError) or "PermissionError" in str(seen):
            return Unavailable(
                "no permission to talk to the Docker Engine.\n"
                "Run this as root (sudo), or as a member of the group docker."
            )
        seen = seen.__cause__ or seen.__context__
    return Unavailable(
        f"the Docker Engine does not answer ({error}).\nStart it with: systemctl start docker   (or set DOCKER_HOST)"
    )
