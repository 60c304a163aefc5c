"""The scheduler as the command line sees it: behind the plugin's HTTP socket or a plain `admin.sock`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from convgpu.cli.connect.unix_http import HttpClient
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.protocol.layout import ADMIN_SOCKET_FILE
from convgpu.protocol.records import (
    Container,
    Containers,
    Devices,
    Event,
    Events,
    LimitChange,
    LimitChanges,
    Past,
    PolicyChoice,
    Record,
)

_TIMEOUT: Final = 10.0  # seconds

RecordT = TypeVar("RecordT", bound=Record)


class Transport(Protocol):
    """A way to ask the scheduler."""

    def ask(self, op: str, **fields: object) -> object:
        """Return the answer to an op of docs/protocol.md, Administration.

        Raises:
            Unavailable: no answer.
            Refused: it cannot be.
        """


class DaemonTransport:
    """The `admin.sock` of a `convgpud` that runs without Docker.

    Args:
        directory: of the daemon.
        timeout: seconds for one question, waiting for a daemon that is just starting included.
    """

    def __init__(self, directory: Path, timeout: float = _TIMEOUT) -> None:
        from convgpu.client.admin import AdminClient  # noqa: PLC0415 - the plugin's transport needs none

        self._client = AdminClient(str(directory / ADMIN_SOCKET_FILE), timeout)
        self._directory = directory

    def ask(self, op: str, **fields: object) -> object:
        """See `Transport.ask`."""
        from convgpu.client.admin import SchedulerRefused, SchedulerUnavailable  # noqa: PLC0415 - as above

        try:
            return self._client.request(op, **fields)
        except SchedulerRefused as error:
            raise (Unavailable if error.code == "failed" else Refused)(error.text) from error
        except SchedulerUnavailable as error:
            raise Unavailable(
                f"{error}\nStart one there with: convgpud --directory {self._directory}; "
                "or leave out --directory (and CONVGPU_DIRECTORY) to ask the plugin of the Docker Engine."
            ) from error


class PluginTransport:
    """The plugin's HTTP administration on its socket, which only root may reach.

    Args:
        http: a client of that socket.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def ask(self, op: str, **fields: object) -> object:
        """See `Transport.ask`; volumes are made by the Engine only."""
        method, url, body = route(op, fields)
        try:
            reply = self._http.ask(method, url, body)
            answer = reply.json()
        except (OSError, ValueError) as error:
            raise self._explain(error) from error
        if reply.status >= 400:
            raise _refusal(reply.status, answer)
        return answer

    def _explain(self, error: Exception) -> Unavailable:
        if isinstance(error, PermissionError):
            return Unavailable(
                f"no permission to open the plugin's socket {self._http.path}.\nRun this as root: sudo convgpu ..."
            )
        reason = getattr(error, "strerror", None) or error
        return Unavailable(
            f"the plugin does not answer on {self._http.path} ({reason}).\nLook at the Engine's log for lines with "
            "plugin=..., and restart it: docker plugin disable -f NAME && docker plugin enable NAME"
        )


def route(op: str, fields: Mapping[str, object]) -> tuple[str, str, object]:
    """Return method, URL and body of the HTTP request that means an op of the scheduler."""
    match op, dict(fields):
        case "set", {"name": name, "memory": memory}:
            return "POST", f"/v1/containers/{quote(str(name), safe='')}/limits", {"memory": memory}
        case "drain", {"device": device, "drained": drained}:
            return "POST", f"/v1/devices/{quote(str(device), safe='')}/drain", {"drained": drained}
        case "policy", {"policy": str(policy)}:
            return "POST", "/v1/policy", {"policy": policy}
        case _:
            given = {name: value for name, value in fields.items() if value is not None}
            return "GET", f"/v1/{op}" + (f"?{urlencode(given, doseq=True)}" if given else ""), None


def _refusal(status: int, answer: object) -> Refused | Unavailable:
    problem = answer.get("error") if isinstance(answer, dict) else None
    text = str(problem.get("text")) if isinstance(problem, dict) else ""
    if status in {400, 404, 409} and isinstance(problem, dict) and problem.get("code") != "http":
        return Refused(text)
    if status in {404, 405}:
        return Unavailable("the plugin is older than this command and cannot do that.\nUpgrade it (docs/operations.md)")
    return Unavailable(f"the plugin answered {status}: {text}")


class Scheduler:
    """Typed questions over a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def devices(self) -> Devices:
        """Return the GPUs, the policy, and where the volume brings a driver along."""
        return self._read(Devices, "devices")

    def containers(self) -> tuple[Container, ...]:
        """Return what the scheduler knows of each container."""
        return self._read(Containers, "containers").containers

    def events(self, since: int = 0) -> Events:
        """Return the events with a sequence number of `since` or more."""
        return self._read(Events, "events", since=since)

    def history(
        self, container: str | None = None, kinds: tuple[str, ...] = (), after: float | None = None, limit: int = 1000
    ) -> tuple[Event, ...]:
        """Return what is kept of the past, newest last; see `requests.Past`."""
        past = self._read(Past, "history", container=container, kinds=kinds, after=after, limit=limit)
        return past.events

    def set_limits(self, name: str, memory: str) -> tuple[LimitChange, ...]:
        """Change the limits of a container, by the name of its volume."""
        return self._read(LimitChanges, "set", name=name, memory=memory).devices

    def drain(self, device: str, *, drained: bool) -> None:
        """Give no new grants on a device, or give them again."""
        self._transport.ask("drain", device=device, drained=drained)

    def policy(self, name: str | None = None) -> PolicyChoice:
        """Choose the policy, or with None only tell it."""
        return self._read(PolicyChoice, "policy", policy=name)

    def _read(self, model: type[RecordT], op: str, **fields: object) -> RecordT:
        answer = self._transport.ask(op, **fields)
        try:
            return msgspec.convert(answer, model)
        except msgspec.ValidationError as error:
            raise Unavailable(
                f"the scheduler's answer to {op!r} is not understood ({error}).\n"
                "The plugin and this command are of different versions: upgrade the older one."
            ) from error
