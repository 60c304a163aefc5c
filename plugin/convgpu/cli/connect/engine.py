"""The Docker Engine as the command line needs it: the plugin, the containers and the images."""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from convgpu.cli.connect import engine_endpoint
from convgpu.cli.connect.engine_documents import (
    Image,
    Plugin,
    image_url,
    plugin_directory,
    plugin_url,
    read_image,
    read_plugin,
)
from convgpu.cli.connect.engine_endpoint import Endpoint, Tls
from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.connect.unix_http import HttpClient, OpenHttp, causes
from convgpu.cli.terminal.errors import Unavailable
from convgpu.cli.terminal.signals import unbroken
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.labels import shown_labels

if TYPE_CHECKING:
    import docker

_PROBE_TIMEOUT: Final = 60.0  # seconds for the Engine to make or remove a container
_OK: Final = 200
_CREATED: Final = 201
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_CERTIFICATES: Final = "Name the certificates: --tlsverify, --tlscacert, --tlscert, --tlskey, or DOCKER_CERT_PATH"
_TRIES: Final = 3  # Docker 20.10 answers with an empty body while its authorization plugins are changed


class EngineRefused(Unavailable):
    """The Engine answered, with an error: `status` of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"the Docker Engine refused: {text}")
        self.status = status


class Engine:
    """One Engine. Short questions to a UNIX socket do without the Docker SDK, whose import takes 0.1 s (decision 32).

    Args:
        where: which one.
        open_http: the client of its UNIX socket, and of the plugin's.
    """

    def __init__(self, where: Endpoint, open_http: OpenHttp = QuickHttp) -> None:
        self.endpoint = where
        self._http = None if where.socket is None else open_http(where.socket)

    @classmethod
    def connect(cls, open_http: OpenHttp = QuickHttp) -> "Engine":
        """Return the Engine that the command line means, chosen as `docker` does."""
        return cls(engine_endpoint.current(), open_http)

    @cached_property
    def client(self) -> "docker.DockerClient":
        """The Docker SDK's client.

        Raises:
            Unavailable: no Engine answers; the text names the next step.
        """
        import docker  # noqa: PLC0415 - takes longer than all that `convgpu ps` does
        from docker.errors import DockerException  # noqa: PLC0415

        tls = self.endpoint.tls
        try:
            config = _certificates(tls) if tls else False
            return docker.DockerClient(base_url=self.endpoint.host, tls=config, use_ssh_client=True, version="auto")
        except DockerException as error:
            raise explain(error, self.endpoint.host) from error

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON of a GET.

        Args:
            path: below the API's root; parts that come from users are quoted by the caller.
            query: parameters; a mapping is sent as JSON.

        Raises:
            Unavailable: no Engine answers, or (`EngineRefused`) it refuses.
        """
        words = {key: json.dumps(value) if isinstance(value, dict) else str(value) for key, value in query.items()}
        url = path + ("?" + "&".join(f"{key}={quote(value)}" for key, value in words.items()) if words else "")
        if self._http is None:
            return self._get_by_sdk(url)
        for _ in range(_TRIES):
            try:
                reply = self._http.ask("GET", url)
                answer = reply.json()
            except (OSError, ValueError) as error:
                raise explain(error, self.endpoint.host) from error
            if answer is not None:
                break
        else:
            raise EngineRefused(reply.status, "the Engine answered nothing")
        if reply.status >= 400:
            text = str(answer.get("message")) if isinstance(answer, dict) else f"status {reply.status}"
            raise EngineRefused(reply.status, text)
        return answer

    def _get_by_sdk(self, url: str) -> Any:
        from docker.errors import APIError, DockerException  # noqa: PLC0415

        # The SDK's client is a session of requests: only private methods take any path.
        api: Any = self.client.api
        try:
            return api._result(api._get(api.base_url + url), json=True)  # noqa: SLF001
        except APIError as error:
            raise EngineRefused(error.status_code or 0, str(error.explanation or error)) from error
        except (DockerException, OSError) as error:
            raise explain(error, self.endpoint.host) from error

    def plugin(self, name: str) -> Plugin:
        """Return the ConvGPU plugin that is called `name` in the Engine.

        Raises:
            Unavailable: it is not installed, or not enabled.
        """
        try:
            plugin = read_plugin(name, self.get(plugin_url(name)))
        except EngineRefused as error:
            if error.status != _NOT_FOUND:
                raise
            raise Unavailable(
                f"the Docker Engine has no plugin {name!r}.\n"
                "Install it: convgpu doctor --set-up; in a checkout: make plugin   (or name yours: --gpu-volume-driver)"
            ) from error
        if plugin is None:
            raise Unavailable(f"the plugin {name!r} is disabled.\nEnable it with: docker plugin enable {name}")
        return plugin

    def directory(self, plugin: Plugin) -> str:
        """Return where the plugin's /var/lib/convgpu lies on the Engine's host."""
        return plugin_directory(self.info.get("DockerRootDir"), plugin)

    @property
    def version(self) -> str:
        """The Engine's version."""
        return str(self.info.get("ServerVersion", ""))

    def is_simulated(self, plugin: Plugin) -> bool | None:
        """Return whether the plugin's GPUs are simulated, None if it does not answer.

        Where its socket is out of reach (not root, a remote Engine), its settings say it.
        """
        if not os.access(plugin.path, os.W_OK):
            return plugin.settings.get("CONVGPU_DEVICES", "").startswith("simulated:")
        try:
            reply = QuickHttp(plugin.path).ask("GET", "/v1/devices")
            answer = reply.json()
        except (OSError, ValueError):
            return None
        known = reply.status == _OK and isinstance(answer, dict)
        return answer.get("volume_library_path") is not None if known else None

    @cached_property
    def info(self) -> dict[str, Any]:
        """The document of `docker info`."""
        answer: dict[str, Any] = self.get("/info")
        return answer

    def containers(self) -> dict[str, tuple[EngineContainer, ...]]:
        """Return the containers, running or not, by the names of their volumes and by their ids."""
        found: dict[str, list[EngineContainer]] = defaultdict(list)
        for row in self.get("/containers/json", all=1):
            container = EngineContainer(row["Id"], _name(row), row["Image"], shown_labels(row.get("Labels") or {}))
            found[container.id].append(container)
            for volume in {mount["Name"] for mount in row.get("Mounts") or () if mount.get("Name")}:
                found[volume].append(container)
        return {volume: tuple(containers) for volume, containers in found.items()}

    def image(self, name: str) -> Image | None:
        """Return the configuration of an image, or None if the Engine does not have it."""
        try:
            return read_image(self.get(image_url(name)))
        except EngineRefused:
            return None  # absent, or not a name: docker run gives the better message

    def image_has(self, image: str, path: str) -> bool:
        """Say whether an image has something at `path`.

        Only a container can be asked that; this one is never started, and removed again.
        """
        with unbroken():
            if self._http is None:
                return self._probe_by_sdk(image, path)
            return self._probe(QuickHttp(self._http.path, _PROBE_TIMEOUT), image, path)

    def _probe(self, http: HttpClient, image: str, path: str) -> bool:
        wanted = {"Image": image, "Cmd": ["true"], "NetworkDisabled": True}
        try:
            made = http.ask("POST", "/containers/create", wanted)
            if made.status != _CREATED:
                return False  # docker run gives the better message
            container = made.json()["Id"]
            try:
                return http.ask("HEAD", f"/containers/{container}/archive?path={quote(path)}").status == _OK
            finally:
                http.ask("DELETE", f"/containers/{container}?force=1&v=1")
        except (OSError, ValueError) as error:
            raise explain(error, self.endpoint.host) from error

    def _probe_by_sdk(self, image: str, path: str) -> bool:
        from docker.errors import DockerException  # noqa: PLC0415

        api = self.client.api
        try:
            container = api.create_container(image, command=["true"], network_disabled=True)["Id"]
        except DockerException:
            return False  # docker run gives the better message
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
        from docker.errors import DockerException, NotFound  # noqa: PLC0415

        for name in names:
            try:
                self.client.containers.get(name).remove(force=True, v=True)
            except NotFound:
                continue
            except DockerException as error:
                if getattr(error, "status_code", None) != _CONFLICT:  # else the Engine removes it already
                    raise explain(error, self.endpoint.host) from error

    def remove_volume(self, name: str) -> bool:
        """Remove a volume; return whether it is gone: one that somebody uses, or whose driver refuses, is not."""
        from docker.errors import APIError, DockerException  # noqa: PLC0415

        try:
            self.client.api.remove_volume(name)
        except APIError as error:
            return error.status_code == _NOT_FOUND
        except DockerException as error:
            raise explain(error, self.endpoint.host) from error
        return True


def _certificates(tls: Tls) -> "docker.tls.TLSConfig":
    """Return what the SDK needs for a TLS connection.

    requests prefers REQUESTS_CA_BUNDLE, which many machines have set, to the setting of a session
    (https://github.com/psf/requests/issues/3829). So each request gets the Engine's own authority here.
    """
    import urllib3  # noqa: PLC0415 - as all of the SDK
    from docker.tls import TLSConfig  # noqa: PLC0415

    class Certificates(TLSConfig):
        def configure_client(self, client: Any) -> None:
            super().configure_client(client)
            merge = client.merge_environment_settings

            def merged(url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
                return merge(url, proxies, stream, client.verify if verify is None else verify, cert)

            client.merge_environment_settings = merged

    if not tls.verify:  # as the user asked, and without a warning, like docker
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    pair = (tls.cert, tls.key) if tls.cert and tls.key else None
    return Certificates(client_cert=pair, ca_cert=tls.ca, verify=tls.verify)


def _name(row: Mapping[str, Any]) -> str:
    # A linked container has further names of the form /other/alias; its own has one slash.
    own = [name.lstrip("/") for name in row["Names"] or () if name.count("/") == 1]
    return own[0] if own else str(row["Id"])[:12]


def explain(error: BaseException, host: str) -> Unavailable:
    """Return the error for the user, with the next step, for an error of the connection to the Engine at `host`."""
    if "HTTP request to an HTTPS server" in str(error):
        return Unavailable(f"the Docker Engine at {host} wants TLS.\n{_CERTIFICATES}")
    if getattr(error, "status_code", None) is not None:  # the SDK's APIError, which is not imported for this
        return Unavailable(f"the Docker Engine refused: {getattr(error, 'explanation', None) or error}")
    reason: object = error
    import ssl  # noqa: PLC0415 - only an error needs it

    for seen in causes(error):
        if isinstance(seen, PermissionError) or "PermissionError" in str(seen):
            return Unavailable(
                "no permission to talk to the Docker Engine.\n"
                "Run this as root (sudo); members of the group docker can run, create and read."
            )
        if isinstance(seen, ssl.SSLError):
            return Unavailable(f"no TLS with the Docker Engine at {host}: {seen.strerror}.\n{_CERTIFICATES}")
        reason = getattr(seen, "strerror", None) or reason
    return Unavailable(
        f"the Docker Engine at {host} does not answer ({reason}).\n"
        "Start it with: systemctl start docker   (or name another one: -H, --context, DOCKER_HOST)"
    )
