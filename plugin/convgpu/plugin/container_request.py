"""What the body of `POST /containers/create` asks for: a GPU, and a ConvGPU volume."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from convgpu.plugin import go_json

# vendor.com/class=name, as the Container Device Interface qualifies a device.
_CDI_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*/[A-Za-z][A-Za-z0-9._-]*=.+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The parts of a request that tell whether it uses a GPU and carries a limit."""

    host: Mapping[str, object]
    anonymous_volumes: Mapping[str, object]

    def gpu(self) -> str | None:
        """Return what asks for a GPU, as the user would recognise it, or None.

        Raises:
            go_json.Ambiguous: the request can be read in two ways.
        """
        if go_json.children(self.host, "devicerequests"):
            return "--gpus, or a CDI device"
        for device in go_json.children(self.host, "devices"):
            path = go_json.text(device, "pathonhost")
            if _CDI_NAME.fullmatch(path):
                return f"the CDI device {path}"
            if _is_gpu_device(path) or _normal(path) in {"/", "/dev"}:
                return f"--device {path}"
        for source in self._bind_sources():
            if _is_gpu_device(source):
                return f"the mount of {source}"
        return None

    def carries_volume(self, driver: str, knows_volume: Callable[[str], bool]) -> bool:
        """Tell whether a volume of `driver` is mounted.

        Args:
            driver: the plugin's name in the Engine.
            knows_volume: whether a volume that exists already, and is named only, is one of ours.

        Raises:
            go_json.Ambiguous: the request can be read in two ways.
        """
        names = []
        for mount in go_json.children(self.host, "mounts"):
            if go_json.text(mount, "type") != "volume":
                continue
            config = go_json.child(go_json.child(mount, "volumeoptions"), "driverconfig")
            given = go_json.text(config, "name")
            if _same_plugin(given, driver):
                return True
            if not given:
                names.append(go_json.text(mount, "source"))
        named = [bind.partition(":")[0] for bind in self._named_binds()]
        given = go_json.text(self.host, "volumedriver")
        if _same_plugin(given, driver):
            # The Engine refuses a volume of that name that another driver made, so a name alone is enough.
            return bool(named or self.anonymous_volumes or self._anonymous_binds())
        return any(knows_volume(name) for name in [*names, *named] if name)

    def _binds(self) -> list[str]:
        return go_json.texts(self.host, "binds")

    def _named_binds(self) -> list[str]:
        return [bind for bind in self._binds() if ":" in bind and not bind.startswith("/")]

    def _anonymous_binds(self) -> list[str]:
        return [bind for bind in self._binds() if ":" not in bind and bind.startswith("/")]

    def _bind_sources(self) -> Iterator[str]:
        for bind in self._binds():
            yield bind.partition(":")[0]
        for mount in go_json.children(self.host, "mounts"):
            yield go_json.text(mount, "source")


def read_container_request(document: Mapping[str, object]) -> ContainerRequest:
    """Return what matters of a decoded body.

    Without a HostConfig, Engines up to 26 take its fields from the top level: they are honoured as such here.

    Raises:
        go_json.Ambiguous: the request can be read in two ways.
    """
    absent = go_json.field(document, "hostconfig") is None
    host = document if absent else go_json.child(document, "hostconfig")
    return ContainerRequest(host, go_json.child(document, "volumes"))


def _normal(path: str) -> str:
    # normpath keeps two leading slashes, as POSIX allows them a meaning; Linux gives them none.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else path


def _is_gpu_device(path: str) -> bool:
    return _normal(path).startswith("/dev/nvidia")


def _same_plugin(given: str, driver: str) -> bool:
    return bool(given) and _without_tag(given) == _without_tag(driver)


def _without_tag(name: str) -> str:
    # A colon before the last slash belongs to a registry's port.
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]
