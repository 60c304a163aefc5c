"""Whom the events of containers that are gone are told of."""

from pathlib import Path

from convgpu.cli.connect.scheduler import Scheduler, read_answer
from convgpu.cli.show.events import Names
from convgpu.protocol.records import Event
from convgpu.protocol.requests import AnswerT, ListContainers, ReadHistory, Request


def event(number: int, kind: str, volume: str, **more: object) -> dict[str, object]:
    return {"sequence": number, "time": float(number), "kind": kind, "container": volume, **more}


GONE = [event(2, "removed", "v1", name="train"), event(5, "removed", "v2"), event(7, "removed", "v3", name="train")]


class Transport:
    """A scheduler that has only `here` left."""

    asked = 0

    def ask(self, request: Request[AnswerT]) -> AnswerT:
        return read_answer(request, self._answer(request))

    def _answer(self, request: Request[AnswerT]) -> object:
        here = {"name": "here", "mountpoint": "/d", "created": 1.0, "state": "running"}
        if isinstance(request, ReadHistory):
            self.asked += 1
            assert request.kinds == ("removed",)
            return {"events": GONE}
        return {"containers": [here]} if isinstance(request, ListContainers) else {"devices": [], "policy": "fifo"}


def test_containers_that_are_gone_keep_their_names(tmp_path: Path) -> None:
    transport = Transport()
    names = Names(Scheduler(transport), tmp_path)
    assert names.learn([Event(sequence=3, time=3.0, kind="paused", container="here")]) == {"here": "here"}
    assert transport.asked == 0
    told = names.learn([Event(sequence=number, time=1.0, kind="paused", container=f"v{number}") for number in (1, 2)])
    assert told == {"here": "here", "v1": "train", "v3": "train"}
    again = Names(Scheduler(transport), tmp_path)
    waited = again.learn([Event(sequence=3, time=3.0, kind="paused", container="here", behind=("v1",))])
    assert (waited["v1"], transport.asked) == ("train", 2)
    names.learn([Event(sequence=9, time=9.0, kind="paused", container="v9")])
    assert transport.asked == 2


def test_a_name_means_the_last_container_that_had_it(tmp_path: Path) -> None:
    names = Names(Scheduler(Transport()), tmp_path)
    assert [names.volume(word) for word in (None, "here", "train", "v2")] == [None, "here", "v3", "v2"]
