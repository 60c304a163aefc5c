"""The scenario on a scripted backend: a scheduler as data, and a clock that the script moves."""

from collections.abc import Mapping
from typing import Any, Self

from msgspec import convert
from msgspec.structs import replace

from convgpu.cli.connect.scheduler import Scheduler, read_answer
from convgpu.cli.demo.backend import Exited
from convgpu.cli.demo.report import as_data, timeline_lines
from convgpu.cli.demo.runner import Clock, run_demo
from convgpu.cli.demo.scenario import DemoContainer, at_rest, containers, leaving_containers
from convgpu.cli.demo.timeline import ASCII, Pause, Timeline
from convgpu.protocol.records import Container, Device, Devices
from convgpu.protocol.requests import AnswerT, ListContainers, ReadEvents, Request

GIB = 1 << 30
CARD = Device(uuid="GPU-a", index=0, name="card", total=16 * GIB, capacity=16 * GIB, granted=0, used=0, settling=0)
DEVICES = Devices(devices=(CARD,), policy="best-fit")


class Script:
    """A backend: A ends when it is released; C waits from 0.1 s after its start until then, and ends 2 s later."""

    description = "a script"

    def __init__(self, *, goes_on: bool = True) -> None:
        self.time = 0.0
        self.scheduler = Scheduler(self)
        self._goes_on = goes_on
        self._started: dict[str, float] = {}
        self.released: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, container: DemoContainer) -> None:
        self._started[container.name] = self.time

    def release(self, container: DemoContainer) -> None:
        self.released.setdefault(container.name, self.time)

    def volumes(self) -> Mapping[str, DemoContainer]:
        # The Engine names a container half a second after it started.
        return {f"volume-{p.name}": p for p in CONTAINERS if self.time >= self._started.get(p.name, 1e9) + 0.5}

    def exited(self) -> Mapping[str, Exited]:
        return {name: Exited(0, "") for name in self._started if self._end(name) <= self.time}

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        return read_answer(request, self._answer(request))

    def _answer(self, request: Request[AnswerT]) -> object:
        if isinstance(request, ListContainers):
            rows = [self._container(name) for name in self._started]
            return {"containers": rows}
        events = [event for event in self._events() if event["time"] <= self.time]
        assert isinstance(request, ReadEvents)
        return {"events": [e for e in events if e["sequence"] >= request.since], "next": len(events)}

    def _end(self, name: str) -> float:
        end = self.released.get("A", 1e9)
        if name == "A":
            return end
        return end + 2.0 if self._goes_on else 1e9

    def _container(self, name: str) -> dict[str, Any]:
        usage = 6 * GIB if name == "A" and self.time >= 1.0 else 0
        share = {"uuid": "GPU-a", "limit": 7 * GIB, "grant": usage, "usage": usage}
        row = {
            "name": f"volume-{name}",
            "mountpoint": f"/d/{name}",
            "created": 0.0,
            "state": "running",
            "devices": [share],
        }
        if name == "C" and self.time >= self._started["C"] + 0.1:
            wanted = {"uuid": "GPU-a", "size": GIB, "call": "cuMemAlloc", "pid": 7, "since": 1.1, "missing": GIB}
            row["waiting"] = [wanted]
        return row

    def _events(self) -> list[dict[str, Any]]:
        start, end = self._started.get("C", 1e9), self.released.get("A", 1e9)
        asked = {"container": "volume-C", "pid": 7, "uuid": "GPU-a", "size": GIB, "call": "cuMemAlloc"}
        rows: list[dict[str, Any]] = [
            {"time": self._started.get("A", 1e9), "kind": "mounted", "container": "volume-A"},
            {"time": start, "kind": "mounted", "container": "volume-C"},
            {"time": start + 0.1, "kind": "paused", **asked},
            {"time": end, "kind": "ended", "container": "volume-A"},
        ]
        if self._goes_on:
            rows += [
                {"time": end, "kind": "granted", **asked, "waited": end - start - 0.1},
                {"time": end + 2.0, "kind": "ended", "container": "volume-C"},
            ]
        return [{"sequence": number, **row} for number, row in enumerate(rows)]


ALL = containers(CARD)
CONTAINERS = [container for container in ALL if container.name in {"A", "C"}]


def clock(script: Script) -> Clock:
    def sleep(seconds: float) -> None:
        script.time = round(script.time + seconds, 3)

    return Clock(lambda: script.time, sleep)


def test_the_second_wave_starts_when_the_first_has_its_memory_and_all_is_told() -> None:
    script, lines = Script(), list[str]()
    result = run_demo(script, DEVICES, CONTAINERS, lines.append, clock(script))
    assert lines == [
        "start A: limit 7GiB, takes 6GiB, keeps it 1s and until others wait",
        "  0.0s  A has started",
        "start C: limit 6GiB, takes 5GiB, keeps it 2s",
        "  1.0s  C has started",
        "  1.1s  C is PAUSED: waits for 1GiB (cuMemAlloc)",
        "  3.0s  A has ended and given its memory back",
        "  3.0s  C GOES ON after 1.9s: has got its 1GiB",
        "  5.0s  C has ended and given its memory back",
    ]
    a, c = result.timelines
    assert (a, c) == (
        Timeline("A", 7 * GIB, 0.0, (), 3.0),
        Timeline("C", 6 * GIB, 1.0, (Pause(GIB, 1.1, 3.0, granted=True),), 5.0),
    )
    assert result.problems == ()
    assert script.released == {"A": 3.0}
    data = as_data(result)
    assert (data["pause_seen"], data["policy"], data["device"]) == (
        True,
        "best-fit",
        {"uuid": "GPU-a", "index": 0, "name": "card", "capacity": 16 * GIB},
    )
    assert [(row["name"], row["kind"]) for row in data["events"]] == [
        ("A", "mounted"),
        ("C", "mounted"),
        ("C", "paused"),
        ("A", "ended"),
        ("C", "granted"),
        ("C", "ended"),
    ]


def test_a_container_that_never_goes_on_ends_the_play_in_time_and_is_named() -> None:
    script = Script(goes_on=False)
    result = run_demo(script, DEVICES, CONTAINERS, lambda _: None, clock(script))
    assert script.time <= 61
    assert result.length == script.time
    assert result.problems == ("an allocation was paused, but none went on", "C did not end in time")


def test_the_timeline_fits_the_terminal() -> None:
    script = Script()
    result = run_demo(script, DEVICES, CONTAINERS, lambda _: None, clock(script))
    assert timeline_lines(result.timelines, 5.0, 40, ASCII) == [
        "A          ###############",
        "C               ..........##########",
        "           |         |         |",
        "           0         2         4 s",
        "           # runs   . paused, waits for memory",
    ]


def test_the_scenario_asks_for_more_than_there_is() -> None:
    assert [(container.name, container.limit, container.size, container.wave) for container in ALL] == [
        ("A", 7 * GIB, 6 * GIB, 0),
        ("B", 8 * GIB, 7 * GIB, 0),
        ("C", 6 * GIB, 5 * GIB, 1),
        ("D", 4 * GIB, 3 * GIB, 1),
    ]
    assert ALL[0].arguments == ("--steps", "10", "--pause-before", "0.1", "--hold", "1", "--wait-for-stdin", "6144m")


def test_who_waits_for_memory_that_leaves_is_at_rest_only_when_it_has_it() -> None:
    script = Script()
    script.start(next(container for container in ALL if container.name == "C"))
    script.time = 1.0
    waits = convert(script._container("C"), Container)
    leaves = leaving_containers(CARD)[1]
    assert at_rest(next(container for container in ALL if container.name == "C"), {"C": waits})
    assert not at_rest(leaves, {"B": waits})
    share = replace(waits.devices[0], usage=leaves.size)
    assert at_rest(leaves, {"B": replace(waits, devices=(share,))})


def test_other_containers_on_the_gpu_are_named_first() -> None:
    script, lines = Script(), list[str]()
    busy = replace(CARD, granted=7 * GIB)
    run_demo(script, Devices(devices=(busy,), policy="fifo"), CONTAINERS, lines.append, clock(script))
    assert lines[0] == "Note: other containers have 7GiB of this GPU; the scenario may not end in time"
