"""The scheduler as the command line sees it: behind the plugin's HTTP socket or a plain `admin.sock`."""

from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from convgpu.cli.connect.unix_http import HttpClient
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cli.terminal.person import person
from convgpu.protocol.inspection.records import Allocations, Trace
from convgpu.protocol.inspection.usage import Step, Usage
from convgpu.protocol.layout import ADMIN_SOCKET_FILE
from convgpu.protocol.records import (
    Container,
    Devices,
    Event,
    Events,
    LimitChanges,
    PolicyChoice,
)
from convgpu.protocol.requests import (
    AnswerT,
    ChoosePlacement,
    ChoosePolicy,
    DrainDevice,
    FollowCalls,
    ListAllocations,
    ListContainers,
    ListDevices,
    ReadEvents,
    ReadHistory,
    ReadUsage,
    Request,
    ResumeContainer,
    SetLimits,
    SuspendContainer,
)

_TIMEOUT: Final = 10.0  # seconds
_FAILED: Final = 503
_FORBIDDEN: Final = 403
_CANNOT_START: Final = "the scheduler cannot start"


class Transport(Protocol):
    """A way to the scheduler."""

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """Return the answer to a request.

        Raises:
            Unavailable: there is no answer, or none that is understood.
            Refused: the scheduler refused the request; the text is for the user.
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

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """See `Transport.ask`."""
        from convgpu.client.scheduler import (  # noqa: PLC0415 - as above
            AnswerNotUnderstood,
            SchedulerRefused,
            SchedulerUnavailable,
        )

        try:
            return self._client.ask(request)
        except AnswerNotUnderstood as error:
            raise _not_understood(request, error.__cause__ or error) from error
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

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        """See `Transport.ask`; volumes are made by the Engine only."""
        method, url, body = route(request)
        try:
            reply = self._http.ask(method, url, body)
            answer = reply.json()
        except (OSError, ValueError) as error:
            raise self._explain(error) from error
        if reply.status >= 400:
            raise _refusal(reply.status, answer)
        return read_answer(request, answer)

    def _explain(self, error: Exception) -> Unavailable:
        if isinstance(error, PermissionError):
            return Unavailable(
                f"no permission to open the plugin's socket {self._http.path}.\nRun this as root: sudo convgpu ... "
                "(reading works for a group, too: docs/operations.md, CONVGPU_READERS)"
            )
        reason = getattr(error, "strerror", None) or error
        return Unavailable(
            f"the plugin does not answer on {self._http.path} ({reason}).\nLook at the Engine's log for lines with "
            "plugin=..., and restart it: docker plugin disable -f NAME && docker plugin enable NAME"
        )


def route(request: Request[Any]) -> tuple[str, str, object]:
    """Return method, URL and body of the HTTP request that means a request to the scheduler."""
    match request:
        case SetLimits() | DrainDevice() | SuspendContainer() | ResumeContainer():
            return _route_change(request)
        case ListAllocations(name=name, most=most):
            return "GET", f"/v1/containers/{quote(name, safe='')}/allocations?most={most}", None
        case FollowCalls(name=name, since=since):
            return "GET", f"/v1/containers/{quote(name, safe='')}/trace?since={since}", None
        case ChoosePolicy(policy=str(policy)) | ChoosePlacement(policy=str(policy)):
            return "POST", f"/v1/{request.operation}", {"policy": policy, **_by(request)}
        case _:
            fields = msgspec.to_builtins(request)
            operation = fields.pop("op")
            return "GET", f"/v1/{operation}" + (f"?{urlencode(fields, doseq=True)}" if fields else ""), None


def _by(request: SetLimits | DrainDevice | ChoosePolicy | ChoosePlacement) -> dict[str, str]:
    return {"by": request.by} if request.by else {}


def _route_change(request: SetLimits | DrainDevice | SuspendContainer | ResumeContainer) -> tuple[str, str, object]:
    match request:
        case SetLimits(name=name):
            changes = {"memory": request.memory, "wait": request.wait, "priority": request.priority}
            given = {option: text for option, text in changes.items() if text is not None}
            return "POST", f"/v1/containers/{quote(name, safe='')}/limits", {**given, **_by(request)}
        case DrainDevice(device=device, drained=drained):
            return "POST", f"/v1/devices/{quote(device, safe='')}/drain", {"drained": drained, **_by(request)}
        case _:
            deep = "?deep=true" if isinstance(request, SuspendContainer) and request.deep else ""
            return "POST", f"/v1/containers/{quote(request.name, safe='')}/{request.operation}{deep}", {}


def read_answer(request: Request[AnswerT], answer: object) -> AnswerT:
    """Return an answer that was JSON as the type that the request names.

    Raises:
        Unavailable: it is of another type.
    """
    try:
        return msgspec.convert(answer, request.answer_type())
    except msgspec.ValidationError as error:
        raise _not_understood(request, error) from error


def _not_understood(request: Request[Any], error: BaseException) -> Unavailable:
    return Unavailable(
        f"the scheduler's answer to {request.operation!r} is not understood ({error}).\n"
        "The plugin and this command are of different versions: upgrade the older one."
    )


def _refusal(status: int, answer: object) -> Refused | Unavailable:
    problem = answer.get("error") if isinstance(answer, dict) else None
    text = str(problem.get("text")) if isinstance(problem, dict) else ""
    if status in {400, 404, 409} and isinstance(problem, dict) and problem.get("code") != "http":
        return Refused(text)
    if status == _FORBIDDEN:
        return Refused(text)
    if status in {404, 405}:
        return Unavailable("the plugin is older than this command and cannot do that.\nUpgrade it (docs/operations.md)")
    if status == _FAILED and text.startswith(_CANNOT_START):
        return Unavailable(
            f"{text}\nMend that: it tries again every 15 s by itself; "
            "settings are changed by docker plugin disable -f, set, enable."
        )
    return Unavailable(f"the plugin answered {status}: {text}")


class Scheduler:
    """The requests of the command line, over a transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def devices(self) -> Devices:
        """Return the GPUs, the policy, and where the volume brings a driver along."""
        return self._transport.ask(ListDevices())

    def containers(self) -> tuple[Container, ...]:
        """Return all containers that the scheduler knows."""
        return self._transport.ask(ListContainers()).containers

    def events(self, since: int = 0) -> Events:
        """Return the newest events, from the sequence number `since` on."""
        return self._transport.ask(ReadEvents(since))

    def history(
        self, container: str | None = None, kinds: tuple[str, ...] = (), after: float | None = None, limit: int = 1000
    ) -> tuple[Event, ...]:
        """Return the stored history, newest last; see `ReadHistory`."""
        return self._transport.ask(ReadHistory(container, kinds, after, limit)).events

    def usage(self, step: Step = 1, after: int = 0) -> Usage:
        """Return samples of the usage of the GPUs; see `ReadUsage`."""
        return self._transport.ask(ReadUsage(step, after))

    def allocations(self, name: str) -> Allocations:
        """Return what the processes of a container say of their allocations, by the name of its volume."""
        return self._transport.ask(ListAllocations(name))

    def trace(self, name: str, since: int) -> Trace:
        """Return the calls of a container from a number on; see `FollowCalls`."""
        return self._transport.ask(FollowCalls(name, since))

    def set_limits(
        self, name: str, memory: str | None = None, wait: str | None = None, priority: str | None = None
    ) -> LimitChanges:
        """Change limits, longest pause and priority of a container, by the name of its volume; None: as it is."""
        return self._transport.ask(SetLimits(name, memory, wait, priority, by=person()))

    def drain(self, device: str, *, drained: bool) -> None:
        """Stop giving new grants on a device, or give them again."""
        self._transport.ask(DrainDevice(device, drained, by=person()))

    def suspend(self, name: str, *, deep: bool = False) -> None:
        """Suspend a container, by the name of its volume, until it is resumed; `deep`: its contexts as well."""
        self._transport.ask(SuspendContainer(name, deep=deep))

    def resume(self, name: str) -> None:
        """Let a suspended container run again when its turn comes."""
        self._transport.ask(ResumeContainer(name))

    def container(self, name: str) -> Container:
        """Return one container, by the name of its volume.

        Raises:
            Refused: there is none.
        """
        found = next((row for row in self.containers() if row.name == name), None)
        if found is None:
            raise Refused(f"{name} is removed")
        return found

    def policy(self, name: str | None = None) -> PolicyChoice:
        """Change the policy; None changes nothing and returns it."""
        return self._transport.ask(ChoosePolicy(name, by=person() if name else ""))

    def placement(self, name: str | None = None) -> PolicyChoice:
        """Change the policy that chooses GPUs; None changes nothing and returns it."""
        return self._transport.ask(ChoosePlacement(name, by=person() if name else ""))
