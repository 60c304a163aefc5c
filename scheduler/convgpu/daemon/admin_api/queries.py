"""Answers to administration requests that only read."""

from collections.abc import Coroutine, Mapping
from typing import Any

from convgpu.daemon.admin_api.live_settings import LiveSettings
from convgpu.daemon.admin_api.views import Views
from convgpu.daemon.sessions.inspection import Inspection
from convgpu.daemon.storage.history import History
from convgpu.daemon.storage.store import Store
from convgpu.daemon.usage.history import UsageHistory
from convgpu.protocol import records
from convgpu.protocol import requests as r
from convgpu.protocol.layout import DRIVER_PATH

Query = (
    r.ListContainers
    | r.ListActiveContainers
    | r.ListDevices
    | r.ReadEvents
    | r.ReadHistory
    | r.ReadUsage
    | r.ListAllocations
    | r.FollowCalls
)
Answer = Mapping[str, object] | records.Record


class Queries:
    """Answers queries.

    Args:
        inspection: asks processes themselves.
        simulated: the CUDA driver comes with the volumes.
    """

    def __init__(
        self,
        views: Views,
        history: History,
        usage: UsageHistory,
        store: Store,
        live_settings: LiveSettings,
        inspection: Inspection,
        *,
        simulated: bool,
    ) -> None:
        self._views = views
        self._history = history
        self._usage = usage
        self._store = store
        self._live_settings = live_settings
        self._inspection = inspection
        self._library_path = DRIVER_PATH if simulated else None

    def answer(self, query: Query) -> Answer | Coroutine[Any, Any, Answer]:
        """Return the answer, or a coroutine that puts it together in turns, or reads it from the database.

        Raises:
            ContainerRefusedError: no such container.
        """
        match query:
            case r.ListContainers() | r.ListActiveContainers():
                return self._list(query)
            case r.ListDevices():
                return records.Devices(
                    devices=tuple(self._views.devices()),
                    policy=self._live_settings.policy,
                    placement=self._live_settings.placement,
                    volume_library_path=self._library_path,
                    database=self._store.trouble or "ok",
                    surviving=self._views.surviving(),
                )
            case r.ReadEvents(since=since):
                return self._history.since(since)
            case r.ReadHistory():
                return self._history.past(query)
            case r.ReadUsage(step=step, after=after):
                return self._usage.since(step, after)
            case _:
                return self._inspect(query)

    def _list(self, query: r.ListContainers | r.ListActiveContainers) -> Answer | Coroutine[Any, Any, Answer]:
        if isinstance(query, r.ListActiveContainers):
            return self._views.active_containers()
        return self._views.containers() if query.name is None else self._views.container(query.name)

    def _inspect(self, query: r.ListAllocations | r.FollowCalls) -> Answer | Coroutine[Any, Any, Answer]:
        self._views.container(query.name)  # raises if there is none
        if isinstance(query, r.ListAllocations):
            return self._inspection.lister.ask(query.name, query.most)
        return self._inspection.tracer.follow(query.name, query.since)
