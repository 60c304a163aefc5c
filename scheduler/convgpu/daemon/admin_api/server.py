"""Answers to administration requests on `admin.sock`: JSON in, JSON out."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec

from convgpu.daemon.admin_api.live_settings import LiveSettings
from convgpu.daemon.admin_api.queries import Answer, Queries
from convgpu.daemon.containers.reconciliation import Reconciliation
from convgpu.daemon.containers.registry import ContainerRefusedError, ContainerRegistry
from convgpu.daemon.storage.store import Store
from convgpu.daemon.system.background_tasks import BackgroundTasks
from convgpu.logs.cause import bound_cause
from convgpu.protocol import records
from convgpu.protocol import requests as r

log = logging.getLogger(__name__)


class Listeners(NamedTuple):
    """Who is told what the plugin says: that the Engine lists nothing that runs; which containers may lack a limit."""

    on_nobody_runs: Callable[[], None]
    judge_unlimited: Callable[[Sequence[r.UnlimitedVerdict]], None]


class AdminServer:
    """Carries out administration requests.

    Args:
        containers: to create, mount and remove.
        reconciliation: gets the Engine's list.
        live_settings: to change.
        queries: answers requests that only read.
        store: made durable before a change is answered.
        listeners: are told what the plugin says of the Engine.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        containers: ContainerRegistry,
        reconciliation: Reconciliation,
        live_settings: LiveSettings,
        queries: Queries,
        store: Store,
        listeners: Listeners,
        wall_clock: Callable[[], float],
    ) -> None:
        self._containers = containers
        self._reconciliation = reconciliation
        self._live_settings = live_settings
        self._queries = queries
        self._store = store
        self._listeners = listeners
        self._wall_clock = wall_clock
        self._tasks = BackgroundTasks()

    def answer(self, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Carry out a JSON request and give `reply` its JSON answer; any bytes get an answer.

        Requests are carried out in order, before this returns; only an answer may have to wait for a disk.
        """
        cause = ""
        try:
            request = r.read_request(body)
            cause = request.cause
            with bound_cause(cause):
                answer = self._do(request)
        except (r.InvalidRequestError, ContainerRefusedError, OSError) as error:
            reply(_refuse(error, cause))
            return
        if isinstance(answer, Coroutine):
            self._tasks.start(self._finish(answer, cause, reply))
        else:
            reply(_accept(answer))

    async def _finish(self, answer: Awaitable[Answer], cause: str, reply: Callable[[bytes], None]) -> None:
        try:
            done = await answer
            # A history can be long: the loop goes on while a thread encodes it.
            reply(_accept(done) if isinstance(done, records.Done) else await asyncio.to_thread(_accept, done))
        except (OSError, ContainerRefusedError) as error:
            reply(_refuse(error, cause))
        except RuntimeError as error:  # no thread can be started: anybody may have used up the host's processes
            log.exception("administration", extra={"cause": cause})
            reply(_refuse(OSError(str(error)), cause))

    def _do(self, request: r.AnyRequest) -> Answer | Coroutine[Any, Any, Answer]:
        match request:
            case r.ListContainers() | r.ListActiveContainers() | r.ListDevices() | r.ReadEvents() | r.ReadHistory():
                return self._queries.answer(request)
            case r.ReadUsage() | r.ListAllocations() | r.FollowCalls():
                return self._queries.answer(request)
            case (
                r.SetLimits()
                | r.DrainDevice()
                | r.ChoosePolicy()
                | r.ChoosePlacement()
                | r.SuspendContainer()
                | r.ResumeContainer()
            ):
                return self._durable(self._change(request))
            case r.CreateVolume():
                return self._create(request)
            case r.RemoveVolume(name=name):
                self._containers.remove(name)
            case r.MountVolume(name=name, id=mount_id):
                return records.Mounted(self._containers.mount(name, mount_id))
            case r.UnmountVolume(name=name, id=mount_id):
                self._containers.unmount(name, mount_id)
            case r.ReportEngineList() | r.ReportNames() | r.JudgeUnlimited():
                self._take_from_engine(request)
            case _:
                assert_never(request)
        return records.Done()

    def _take_from_engine(self, request: r.ReportEngineList | r.ReportNames | r.JudgeUnlimited) -> None:
        match request:
            case r.JudgeUnlimited(verdicts=verdicts):
                self._listeners.judge_unlimited(verdicts)
            case r.ReportNames(container=container):
                self._reconciliation.named(container)
            case r.ReportEngineList():
                if not self._reconciliation.listed(request):
                    self._listeners.on_nobody_runs()

    def _change(
        self,
        request: r.SetLimits
        | r.DrainDevice
        | r.ChoosePolicy
        | r.ChoosePlacement
        | r.SuspendContainer
        | r.ResumeContainer,
    ) -> Answer:
        match request:
            case r.SetLimits():
                return self._live_settings.change(request)
            case r.DrainDevice(device=device, drained=drained):
                self._live_settings.drain(device, drained=drained, by=request.by)
                return records.Done()
            case r.SuspendContainer(name=name, deep=deep):
                self._live_settings.suspend(name, suspended=True, deep=deep)
                return records.Done()
            case r.ResumeContainer(name=name):
                self._live_settings.suspend(name, suspended=False)
                return records.Done()
            case r.ChoosePolicy(policy=policy):
                return self._live_settings.choose_policy(policy, request.by)
            case r.ChoosePlacement(policy=policy):
                return self._live_settings.choose_placement(policy, request.by)

    def _create(self, request: r.CreateVolume) -> Coroutine[Any, Any, Answer]:
        self._check_time(request)
        is_new = request.name not in self._containers.names()
        self._containers.create(request.name, request.options)
        return self._keep(request, is_new)

    async def _keep(self, request: r.CreateVolume, is_new: bool) -> Answer:
        """Return the answer once the volume survives a power loss; what nobody waits for any more is undone."""
        try:
            await self._store.durable()
            self._check_time(request)
        except (OSError, RuntimeError, ContainerRefusedError):
            if is_new:
                log.warning("volume %s, whose creation failed, is removed", request.name)
                self._containers.remove(request.name)
            raise
        return records.Done()

    def _check_time(self, request: r.CreateVolume) -> None:
        if request.until and self._wall_clock() > request.until:
            text = f"volume {request.name} could not be made in time: try again"
            raise ContainerRefusedError("failed", text)

    async def _durable(self, answer: Answer) -> Answer:
        """Return an answer once the change survives a power loss: the Engine remembers the volume from then on."""
        await self._store.durable()
        return answer


def _accept(answer: Answer) -> bytes:
    """Encode an answer; msgspec holds the interpreter's lock for a tenth of the time that `json` does."""
    return b'{"ok":' + msgspec.json.encode(answer) + b"}"


def _refuse(error: r.InvalidRequestError | ContainerRefusedError | OSError, cause: str) -> bytes:
    match error:
        case r.InvalidRequestError():
            code, text = "invalid", str(error)
        case ContainerRefusedError():
            code, text = error.code, str(error)
        case _:
            log.error("administration: %s", error, extra={"cause": cause})
            code, text = "failed", f"the scheduler could not do it: {error}"
    # The Engine asks for each new volume first whether it exists, so this code is normal.
    level = logging.DEBUG if code == "unknown" else logging.WARNING
    log.log(level, "refused code=%s %s", code, text, extra={"cause": cause})
    return json.dumps({"error": {"code": code, "text": text}}).encode()
