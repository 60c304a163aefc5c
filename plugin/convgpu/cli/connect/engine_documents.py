"""What the Engine's documents say of its plugin and its images, for each way to ask for them. Pure."""

from __future__ import annotations

from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any, Final

_SOCKETS: Final = "/run/docker/plugins"  # fixed in the Engine, whatever its --exec-root is
_SAFE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/")


class Image(Record):
    """The configuration of an image.

    Attributes:
        environment: `NAME=VALUE` rows.
        volumes: paths at which it wants some.
        id: of its configuration.
        data_root: the Engine's DockerRootDir, where the image tells of it.
    """

    environment: tuple[str, ...]
    volumes: tuple[str, ...]
    id: str = ""
    data_root: str | None = None


class Plugin(Record):
    """The enabled ConvGPU plugin: the path of its socket on the Engine's host, its settings, and its id there."""

    name: str
    path: str
    settings: Mapping[str, str]
    id: str = ""

    @property
    def socket(self) -> Path:
        """Its socket."""
        from pathlib import Path  # the quick path of `convgpu run` has no time for it

        return Path(self.path)


def plugin_url(name: str) -> str:
    """Return where the Engine tells of a plugin."""
    return f"/plugins/{quoted(name)}/json"


def image_url(name: str) -> str:
    """Return where the Engine tells of an image."""
    return f"/images/{quoted(name)}/json"


def read_plugin(name: str, document: Mapping[str, Any]) -> Plugin | None:
    """Return the plugin of the answer to `plugin_url`; None if it is disabled."""
    if not document.get("Enabled"):
        return None
    interface = document["Config"]["Interface"]["Socket"]
    environment = (entry.partition("=") for entry in document["Settings"]["Env"] or ())
    settings = {key: value for key, _, value in environment}
    return Plugin(name, f"{_SOCKETS}/{document['Id']}/{interface}", settings, document["Id"])


def read_image(document: Mapping[str, Any]) -> Image:
    """Return the image of the answer to `image_url`."""
    config = document.get("Config") or {}
    variables, volumes = tuple(config.get("Env") or ()), tuple(config.get("Volumes") or ())
    return Image(variables, volumes, str(document.get("Id") or ""), _data_root(document.get("GraphDriver") or {}))


def _data_root(driver: Mapping[str, Any]) -> str | None:
    """Return the DockerRootDir in which overlay2 has an image: ROOT/overlay2/ID/diff (moby, daemon/graphdriver)."""
    place = str((driver.get("Data") or {}).get("UpperDir") or "")
    root, found, _ = place.rpartition("/overlay2/")
    return root if found and driver.get("Name") == "overlay2" else None


def plugin_directory(data_root: object, plugin: Plugin) -> str:
    """Return where the plugin's /var/lib/convgpu lies on the Engine's host; `data_root`: the Engine's DockerRootDir."""
    return f"{data_root}/plugins/{plugin.id}/propagated-mount"


def quoted(text: str) -> str:
    """Return text as it stands in the path of a URL, as `urllib.parse.quote`, which takes long to import."""
    return "".join(chr(byte) if chr(byte) in _SAFE else f"%{byte:02X}" for byte in text.encode())
