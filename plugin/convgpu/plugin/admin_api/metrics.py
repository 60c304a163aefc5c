"""Figures for Prometheus: the scheduler's state at the time of the scrape, and the durations of the Engine's calls.

Names and units follow https://prometheus.io/docs/practices/naming/. Labels are bounded: devices by UUID, and of the
containers only those that run or wait, at most MAX_CONTAINERS of them, those with the largest grants; of their devices
those on which they have something or wait.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Final

from flask import Blueprint, Response, request
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from convgpu.client.scheduler import AnswerNotUnderstood, Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.protocol.event_kinds import WaitReason
from convgpu.protocol.records import WAITS, ActiveContainer, ActiveContainers, Device, Totals
from convgpu.protocol.requests import ListActiveContainers, ListDevices, ReadEvents

# When a series began is of no use here, and doubles their number.
disable_created_metrics()  # type: ignore[no-untyped-call]

MAX_CONTAINERS: Final = 1000
_MAX_TEXT: Final = 128  # characters of a name that somebody else chose
_STATES: Final = ("created", "running", "waiting", "ended")
_STANCES: Final = ("running", "stopping", "stopped", "waiting", "restoring", "busy")
_CALLS: Final = {
    path: path.rpartition(".")[2]
    for path in (
        *(wire.CREATE, wire.REMOVE, wire.MOUNT, wire.UNMOUNT, wire.PATH, wire.GET, wire.LIST, wire.CAPABILITIES),
        *(wire.AUTHORIZE_REQUEST, wire.AUTHORIZE_RESPONSE),
    )
}
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
# Above every sequence number: the answer has no event, only the totals.
_NO_EVENT: Final = 1 << 62
_END: Final = b"# EOF\n"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_DEVICE_BYTES: Final[dict[str, tuple[str, Callable[[Device], int]]]] = {
    "memory": ("Memory of the device.", lambda device: device.total),
    "capacity": ("Memory that may be handed out.", lambda device: device.capacity),
    "granted": ("Memory set aside for containers.", lambda device: device.granted),
    "used": ("Memory that containers hold, by the ledger.", lambda device: device.used),
    "settling": ("Memory of ended processes that the driver has not freed yet.", lambda device: device.settling),
    "external": ("Memory that programs outside ConvGPU hold.", lambda device: device.external),
    "out": ("Memory of containers that lies on the host.", lambda device: device.out),
    "pool": ("Host memory for what leaves the device.", lambda device: device.pool),
    "promised": ("Memory that may be granted: the capacity, and what may leave beyond it.", lambda d: d.promised),
}


def _share(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


_DEVICE_ACTIVITY: Final[dict[str, tuple[str, Callable[[Device], float | None]]]] = {
    "utilization_ratio": (
        "Part of the time in which a kernel ran, by NVML.",
        lambda device: _share(device.telemetry.utilization),
    ),
    "temperature_celsius": ("Temperature of the device.", lambda device: device.telemetry.temperature),
    "power_watts": ("Power that the device takes.", lambda device: device.telemetry.power),
    "power_limit_watts": ("The most power that the device may take.", lambda device: device.telemetry.power_limit),
}


def create_blueprint(scheduler: Scheduler, registry: CollectorRegistry, clock: Callable[[], float]) -> Blueprint:
    """Return the route `/metrics`, which answers also when the scheduler does not.

    Args:
        scheduler: asked at each question.
        registry: holds what this process itself measures.
        clock: Unix seconds.
    """
    registry.register(SchedulerCollector(scheduler, clock))
    blueprint = Blueprint("metrics", __name__)

    @blueprint.get("/metrics")
    def metrics() -> Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        families = _Families(registry)
        text = encode(families)
        ended = text.endswith(_END)  # OpenMetrics
        return Response([text.removesuffix(_END), *map(_write, families.long), _END * ended], content_type=content_type)

    return blueprint


class _Families:
    """A registry's families for an encoder, but for the long ones, which are collected in `long`.

    prometheus_client writes a line in 10 us, and a thousand containers have three thousand.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.long: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        """Return the families that the encoder writes."""
        for family in self._registry.collect():
            if family.type == "gauge" and family.name.startswith("convgpu_container_"):
                self.long.append(family)
            else:
                yield family


def _write(family: Metric) -> bytes:
    """Return a gauge of whole numbers as both of Prometheus' text formats have it."""
    lines = [f"# HELP {family.name} {family.documentation}", f"# TYPE {family.name} gauge"]
    for sample in family.samples:
        labels = ",".join([f'{name}="{text.translate(_ESCAPES)}"' for name, text in sample.labels.items()])
        lines.append(f"{sample.name}{{{labels}}} {sample.value}")
    return ("\n".join(lines) + "\n").encode()


class CallDurations:
    """How long the Engine waits for the answers to its calls, but for those that `answer_at_once` gives."""

    def __init__(self, registry: CollectorRegistry) -> None:
        histogram = Histogram(
            "convgpu_docker_request_duration_seconds",
            "How long the Engine waited for an answer of the plugin.",
            ["call"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._calls = {path: histogram.labels(call) for path, call in _CALLS.items()}

    def measure(self, path: str) -> AbstractContextManager[object]:
        """Return a context that measures its body as the call `path`, if that is one of the Engine's."""
        call = self._calls.get(path)
        return nullcontext() if call is None else call.time()


class SchedulerCollector:
    """Asks the scheduler three questions for each scrape."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], float] = time.time) -> None:
        self._scheduler = scheduler
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering asks no question."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return all figures; without a scheduler only that there is none."""
        try:
            devices = self._scheduler.ask(ListDevices())
            listed = self._scheduler.ask(ListActiveContainers())
            totals = self._scheduler.ask(ReadEvents(since=_NO_EVENT)).totals
        except (SchedulerUnavailable, SchedulerRefused, AnswerNotUnderstood):
            yield _up(0)
            return
        yield _up(1)
        yield GaugeMetricFamily(
            "convgpu_database_writable",
            "Whether the scheduler can write its database.",
            int(devices.database == "ok"),
        )
        yield InfoMetricFamily("convgpu_policy", "The policy in force.", {"policy": devices.policy})
        yield from _devices(devices.devices)
        yield from _moves(devices.devices)
        yield from _queue(devices.devices, listed.containers, self._clock())
        yield from _containers(listed)
        yield from _totals(totals)


def _up(value: int) -> Metric:
    return GaugeMetricFamily("convgpu_scheduler_up", "Whether the scheduler answers the plugin.", value)


def _devices(devices: Sequence[Device]) -> Iterator[Metric]:
    info = InfoMetricFamily("convgpu_device", "Index and name of a device.", labels=["device"])
    drained = GaugeMetricFamily("convgpu_device_drained", "Whether it gets no new grants.", labels=["device"])
    healthy = GaugeMetricFamily("convgpu_device_healthy", "Whether it has no known fault.", labels=["device"])
    for device in devices:
        info.add_metric([device.uuid], {"index": str(device.index), "name": _bounded(device.name)})
        drained.add_metric([device.uuid], device.drained)
        healthy.add_metric([device.uuid], device.health == "ok")
    yield from (info, drained, healthy)
    for name, (text, read) in _DEVICE_BYTES.items():
        family = GaugeMetricFamily(f"convgpu_device_{name}_bytes", text, labels=["device"])
        for device in devices:
            family.add_metric([device.uuid], read(device))
        yield family
    for name, (text, find) in _DEVICE_ACTIVITY.items():
        family = GaugeMetricFamily(f"convgpu_device_{name}", text, labels=["device"])
        for device in devices:
            if (value := find(device)) is not None:
                family.add_metric([device.uuid], value)
        yield family


def _moves(devices: Sequence[Device]) -> Iterator[Metric]:
    """Yield what moves between devices and the host."""
    labels = ["device", "direction"]
    moved = CounterMetricFamily("convgpu_device_moved_bytes", "Memory that went out and came back.", labels=labels)
    rate = GaugeMetricFamily("convgpu_device_move_bytes_per_second", "How fast, as card turns reckon.", labels=labels)
    drain = GaugeMetricFamily("convgpu_device_drain_seconds", "How long a container takes to stop.", labels=["device"])
    for device in devices:
        moves = device.moves
        for way, size, speed in (("out", moves.moved_out, moves.rate_out), ("in", moves.moved_in, moves.rate_in)):
            moved.add_metric([device.uuid, way], size)
            rate.add_metric([device.uuid, way], speed)
        drain.add_metric([device.uuid], moves.drain)
    yield from (moved, rate, drain)


def _queue(devices: Sequence[Device], containers: Sequence[ActiveContainer], now: float) -> Iterator[Metric]:
    waiting = [allocation for container in containers for allocation in container.waiting]
    labels = ["device", "reason"]
    count = GaugeMetricFamily("convgpu_waiting_allocations", "Paused allocations, by why they wait.", labels=labels)
    missing = GaugeMetricFamily("convgpu_waiting_bytes", "Memory that paused allocations ask for.", labels=["device"])
    oldest = GaugeMetricFamily("convgpu_oldest_wait_seconds", "Age of the oldest paused allocation.", labels=["device"])
    by_reason = Counter((row.uuid, row.reason if row.reason in set(WaitReason) else "other") for row in waiting)
    for device in devices:
        here = [row for row in waiting if row.uuid == device.uuid]
        for reason in (*WaitReason, "other"):
            count.add_metric([device.uuid, reason], by_reason[device.uuid, reason])
        missing.add_metric([device.uuid], sum(row.size for row in here))
        # Clocks are set back at times: nothing has lasted less than no time.
        oldest.add_metric([device.uuid], max((now - row.since for row in here if row.since < now), default=0.0))
    yield from (count, missing, oldest)


def _containers(listed: ActiveContainers) -> Iterator[Metric]:
    containers, others = listed.containers, listed.others
    states = Counter[str](container.state for container in containers)
    stances = Counter(container.residency for container in containers)
    for row in others:
        states[row.state] += row.count
        stances[row.residency] += row.count
    count = GaugeMetricFamily("convgpu_containers", "Containers with a ConvGPU volume, by state.", labels=["state"])
    for state in _STATES:
        count.add_metric([state], states[state])
    elastic = GaugeMetricFamily(
        "convgpu_elastic_containers", "Containers whose memory may leave, by what they do.", labels=["residency"]
    )
    for stance in _STANCES:
        elastic.add_metric([stance], stances[stance])
    processes = GaugeMetricFamily(
        "convgpu_processes",
        "Processes that are connected to the scheduler.",
        sum(container.processes for container in containers),
    )
    active = sorted(containers, key=lambda container: sum(share.grant for share in container.devices), reverse=True)
    left_out = GaugeMetricFamily(
        "convgpu_containers_left_out",
        f"Containers that run or wait and have no figures of their own, because there are more than {MAX_CONTAINERS}.",
        max(0, len(active) - MAX_CONTAINERS),
    )
    yield from (count, elastic, processes, left_out, *_each(active[:MAX_CONTAINERS]))


def _each(containers: Sequence[ActiveContainer]) -> Iterator[Metric]:
    info = InfoMetricFamily("convgpu_container", "Docker's names of the container of a volume.", labels=["container"])
    labels = ["container", "device"]
    limit = GaugeMetricFamily("convgpu_container_limit_bytes", "The most that a container may use.", labels=labels)
    grant = GaugeMetricFamily("convgpu_container_granted_bytes", "Memory set aside for a container.", labels=labels)
    usage = GaugeMetricFamily("convgpu_container_used_bytes", "Memory that a container holds.", labels=labels)
    out = GaugeMetricFamily("convgpu_container_out_bytes", "Of that, what lies on the host.", labels=labels)
    fixed = GaugeMetricFamily("convgpu_container_fixed_bytes", "Of that, what cannot leave.", labels=labels)
    for container in containers:
        if container.engine is not None:
            names = {"name": _bounded(container.engine.name), "image": _bounded(container.engine.image)}
            info.add_metric([container.name], names)
        for share in container.devices:  # it may use all devices, and these are those on which it has something
            where = (container.name, share.uuid)
            limit.add_metric(where, share.limit)
            grant.add_metric(where, share.grant)
            usage.add_metric(where, share.usage)
            if container.residency is not None:
                out.add_metric(where, share.out)
                fixed.add_metric(where, share.fixed)
    yield from (info, limit, grant, usage, out, fixed)


def _totals(totals: Totals) -> Iterator[Metric]:
    events = CounterMetricFamily("convgpu_events", "Events since the scheduler started.", labels=["kind"])
    for kind, number in sorted(totals.events.items()):
        events.add_metric([kind], number)
    yield events
    waits = HistogramMetricFamily("convgpu_wait_duration_seconds", "How long allocations were paused, once it ended.")
    counts = totals.waits or (0,) * (len(WAITS) + 1)
    bounds = (*(str(bound) for bound in WAITS), "+Inf")
    waits.add_metric([], list(zip(bounds, accumulate(counts), strict=True)), totals.waited)
    yield waits


def _bounded(text: str) -> str:
    return text[:_MAX_TEXT]
