"""Answers on `admin.sock`: JSON in, JSON out."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from convgpu.daemon.admin_api.live_settings import Changes
from convgpu.daemon.admin_api.views import Views
from convgpu.daemon.containers.reconciliation import Reconciliation
from convgpu.daemon.containers.registry import ContainerRefusedError, Containers
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.store import Store
from convgpu.logs import formatter as journal
from convgpu.protocol import records, requests
from convgpu.protocol.layout import DRIVER_PATH

log = logging.getLogger(__name__)

Answer = Mapping[str, object] | records.Record


class Administration:
    """Carries out what administrators ask.

    `on_nobody_runs` is called when the Engine's list says so.

    Args:
        simulated: whether the driver comes with the volumes.
    """

    def __init__(
        self,
        containers: Containers,
        history: History,
        reconciliation: Reconciliation,
        store: Store,
        views: Views,
        changes: Changes,
        *,
        simulated: bool,
    ) -> None:
        self.on_nobody_runs: Callable[[], None] = lambda: None
        self._containers = containers
        self._history = history
        self._reconciliation = reconciliation
        self._store = store
        self._views = views
        self._changes = changes
        self._library_path = DRIVER_PATH if simulated else None
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, body: bytes, reply: Callable[[bytes], None]) -> None:
        """Give `reply` the JSON answer to a JSON request; whatever is asked, there is one.

        What is asked is done before this returns, in the order of the requests; the answer may have to wait for a disk.
        """
        cause = ""
        try:
            request = requests.REQUEST.validate_json(body)
            cause = request.cause
            with journal.working_for(cause):
                answer = self._do(request)
        except (ValidationError, ContainerRefusedError, OSError) as error:
            reply(_refuse(error, cause))
            return
        if isinstance(answer, Coroutine):
            task = asyncio.get_running_loop().create_task(self._finish(answer, cause, reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            reply(_accept(answer))

    async def _finish(self, answer: Awaitable[Answer], cause: str, reply: Callable[[bytes], None]) -> None:
        try:
            done = await answer
            # The past can be long: the loop goes on meanwhile. `{}` is soon said.
            reply(await asyncio.to_thread(_accept, done) if done else _accept(done))
        except OSError as error:
            reply(_refuse(error, cause))

    def _do(self, request: requests.Request) -> Answer | Coroutine[Any, Any, Answer]:
        match request:
            case requests.Containers() | requests.Devices() | requests.Events() | requests.Past():
                return self._tell(request)
            case requests.Create():
                self._containers.create(request.name, request.options)
                return self._durable({})
            case requests.Remove():
                self._containers.remove(request.name)
            case requests.Mount():
                return {"mountpoint": self._containers.mount(request.name, request.id)}
            case requests.Unmount():
                self._containers.unmount(request.name, request.id)
            case requests.Listed():
                if not self._reconciliation.listed(request):
                    self.on_nobody_runs()
            case requests.SetLimits() | requests.Drain() | requests.ChoosePolicy():
                return self._durable(self._change(request))
        return {}

    def _change(self, request: requests.SetLimits | requests.Drain | requests.ChoosePolicy) -> Answer:
        match request:
            case requests.SetLimits(name=name, memory=memory):
                return self._changes.set_limits(name, memory)
            case requests.Drain(device=device, drained=drained):
                self._changes.drain(device, drained=drained)
                return {}
            case requests.ChoosePolicy(policy=policy):
                return self._changes.choose_policy(policy)

    def _tell(
        self, request: requests.Containers | requests.Devices | requests.Events | requests.Past
    ) -> Answer | Coroutine[Any, Any, Answer]:
        match request:
            case requests.Containers(name=name):
                return records.Containers(containers=tuple(self._views.containers(name)))
            case requests.Devices():
                rows = tuple(self._views.devices())
                return records.Devices(
                    devices=rows,
                    policy=self._changes.policy,
                    volume_library_path=self._library_path,
                    database=self._store.trouble or "ok",
                )
            case requests.Events(since=since):
                return self._history.since(since)
            case requests.Past():
                return self._history.past(request)

    async def _durable(self, answer: Answer) -> Answer:
        """Answer when what was changed survives a power loss: the Engine remembers the volume from then on."""
        await self._store.durable()
        return answer


def _accept(answer: Answer) -> bytes:
    """Encode an answer; msgspec does it ten times as fast as Python, which keeps all threads from running meanwhile."""
    return b'{"ok":' + msgspec.json.encode(answer) + b"}"


def _refuse(error: ValidationError | ContainerRefusedError | OSError, cause: str) -> bytes:
    match error:
        case ValidationError():
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "request"
            code, text = "invalid", f"{place}: {first['msg']}"
        case ContainerRefusedError():
            code, text = error.code, str(error)
        case _:
            log.error("administration: %s", error, extra={"cause": cause})
            code, text = "failed", f"the scheduler could not do it: {error}"
    # The Engine asks for each new volume first whether it is there: no news.
    level = logging.DEBUG if code == "unknown" else logging.WARNING
    log.log(level, "refused code=%s %s", code, text, extra={"cause": cause})
    return json.dumps({"error": {"code": code, "text": text}}).encode()
