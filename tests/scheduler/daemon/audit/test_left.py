"""What ended processes left, beside what else their container holds: what counts above the limit."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from audit_parts import GIB, Cards, Parts

from convgpu.core import events as e
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.sessions.exports import Exports
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.transport.connection import Absent


def test_what_an_ended_process_left_is_its_containers_and_no_external_memory(tmp_path: Path) -> None:
    """Beside what the audit finds of it; nobody is ended for it."""

    async def run() -> None:
        parts = Parts(cards := Cards(), tmp_path)
        left, seen = Exports("a", charged=Counter({"one": 3 * GIB})), []
        with closing(parts.store):
            parts.driver.dispatch(e.ContainerCreated("a", {"one": 4 * GIB}))
            parts.outliving._left["a"].append(left)
            parts.driver.dispatch(e.UnleasedMemory("a", "one", 3 * GIB))
            for more in (3, 3, 4, 4, 3):  # a GiB is somebody else's
                cards.used_bytes["one"] = GIB // 2 + more * GIB
                await parts.audit.audit()
                account = parts.driver.machine.account("a", "one")
                assert parts.report.over == {"one": {}, "two": {}}
                seen.append((parts.capacity()[0], account.charged / GIB if account else None))
        assert seen == [(15.5, 3), (15.5, 3), (15.5, 3), (14.5, 3), (15.5, 3)]

    asyncio.run(run())


@dataclass(frozen=True)
class Scene:
    """What container `a` has, in GiB: its living process, one that ends after the first look, and what was left.

    Attributes:
        limit: of the container.
        left: is charged for what ended processes left.
        held: is listed for the living process.
        imported: by that one; it is listed for nobody.
        lease: of a session of it; 0: it has none.
        dead: is listed for the other one, also when it has ended.
        counted: of that, what the limit counts as long as it ends.
        unlisted: is in use beside all that is listed, and not the driver's.
        others: is charged to container `b` for what its processes left; `others_dead`: is listed for them.
        is_sure: of what `a` left it is known that it is there.
        left_by: who did: "dead", the one that ends; "another"; or nobody knows.
        looks: of the audit.
    """

    limit: float = 4
    left: float = 3
    held: float = 0
    imported: float = 0
    lease: float = 0
    dead: float = 0
    counted: float = 0
    unlisted: float = 3
    others: float = 0
    others_dead: float = 0
    is_sure: bool = False
    left_by: str = "dead"
    looks: int = 4


class Index(ProcessIndex):
    """All processes are those of container `a`, but some of `b`."""

    of_b: ClassVar[set[int]] = set()

    def owner_of(self, pid: int) -> tuple[str | None, str | None]:
        return ("b", "other") if pid in self.of_b else ("a", "id")

    def volume_of(self, pid: int) -> str | None:
        return self.owner_of(pid)[0]


def leave(parts: Parts, name: str, limit: float, size: float, pid: int, *, is_sure: bool) -> None:
    left = {"one": int(size * GIB)}
    exports = Exports(name, charged=Counter(left), pid=pid, earlier={} if is_sure else left)
    parts.driver.dispatch(e.ContainerCreated(name, {"one": int(limit * GIB)}))
    parts.driver.dispatch(e.ContainerStarted(name))
    parts.outliving._left[name].append(exports)
    parts.driver.dispatch(e.UnleasedMemory(name, "one", int(size * GIB)))


def audited(tmp_path: Path, scene: Scene) -> tuple[dict[str, float], float]:
    """Return who is above the limit after some looks, and what is nobody's, in GiB."""

    async def run() -> tuple[dict[str, float], float]:
        parts, pid = Parts(cards := Cards(), tmp_path), os.getpid()
        index = Index({pid: "a"} if scene.lease else {}, {"id": "a", "other": "b"}, {})
        parts.attributor._resolver = cast("Any", SimpleNamespace(index=lambda: index))
        parts.attributor._counted = lambda _pid, _device: int(scene.counted * GIB)
        with closing(parts.store), Popen(["cat"], stdin=PIPE) as other, Popen(["cat"], stdin=PIPE) as neighbour:
            index.of_b.clear()
            index.of_b.add(neighbour.pid)
            leave(
                parts,
                "a",
                scene.limit,
                scene.left,
                {"dead": other.pid, "another": 1}.get(scene.left_by, 0),
                is_sure=scene.is_sure,
            )
            leave(parts, "b", 4, scene.others, neighbour.pid, is_sure=False)
            if scene.lease:
                page = cast("Any", SimpleNamespace(read=lambda _row: 0, take_all=lambda _row: 0))
                session = Session(1, "a", Absent(pid), page, ("one", "two"), "program", 0.0)
                parts.sessions.by_number[1] = session
                parts.sessions._by_container.setdefault("a", {})[1] = session
                parts.driver.dispatch(e.SessionStarted(1, "a", {"one": int(scene.lease * GIB)}))
            dead = {other.pid: int(scene.dead * GIB), neighbour.pid: int(scene.others_dead * GIB)}
            held = {pid: int(scene.held * GIB)} | {one: size for one, size in dead.items() if size}
            used = sum(held.values()) + int((scene.unlisted + 0.5) * GIB)
            cards.first, cards.imported = (held, used), {pid: int(scene.imported * GIB)}
            for look in range(scene.looks):
                await parts.audit.audit()
                if look == 0:
                    for one in (other, neighbour):
                        one.kill()
                        one.wait()
        over = {name: round(size / GIB, 1) for name, size in parts.report.over["one"].items()}
        return over, max(parts.audit._before["one"].unattributed / GIB - 0.5, 0)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("scene", "over", "nobodys"),
    [
        (Scene(held=0.75), {}, 0),
        (Scene(held=2), {"a": 5}, 0),  # neither what was left nor what is listed is above the limit
        (Scene(held=2, looks=1), {}, 0),  # one look alone says nothing
        (Scene(limit=2.5), {}, 0),  # nor is anybody ended for what was left alone
        (Scene(limit=4, left=1, held=2, imported=1, unlisted=1), {}, 0),  # it imported all that was left
        (Scene(held=0.75, imported=2), {}, 0),  # two of the three
        (Scene(left=1, held=2, imported=3), {"a": 5}, 0),  # and more, which nobody had left
        # What was left is listed for the dead process: a worker that it forked has all of its descriptors.
        (Scene(left=2.5, dead=3, unlisted=0), {}, 0),
        # A neighbour's memory that is nobody's beside it makes it no more (a stranger had honest ones ended so).
        (Scene(left=2, dead=2, held=1.5, lease=1.5, unlisted=3), {}, 3),
        (Scene(left=2, dead=1, held=2, imported=1, lease=2, unlisted=3), {}, 2),
        (Scene(held=2, imported=2, others=2), {}, 0),  # nor what beside two that it imported
        # But of whom it is known counts, also if what another left is nowhere (a stranger hid nine by one such).
        (Scene(held=2, others=2, is_sure=True), {"a": 5}, 0),
        # What a neighbour left, and is listed for his dead, makes what this one left no less.
        (Scene(held=2, others=3, others_dead=3), {"a": 5}, 0),
        # But it is known who left it, and that is for another one, past the hook; or not known, after a new start.
        (Scene(left=2, dead=3, unlisted=2, left_by="another"), {"a": 5}, 0),
        (Scene(left=2, dead=3, unlisted=2, left_by=""), {}, 2),
        # The same while that ends slowly: its limit counts the rest.
        (Scene(left=2.5, dead=3, counted=0.5, unlisted=0), {}, 0),
        # It is gone, and nobody can tell: what is there, another container left.
        (Scene(held=2, unlisted=1, others=1), {}, 0),
        # Nothing was left, and nothing is there beside what is listed: that makes what was taken no less.
        (Scene(left=0, held=1, lease=2, dead=3, unlisted=0), {"a": 5}, 0),
        # What was left hides nothing else because it was imported as well.
        (Scene(left=3.5, held=0.125, imported=3.5, unlisted=7), {}, 3.5),
    ],
)
def test_what_was_left_counts_once_beside_what_is_taken_past_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scene: Scene, over: Mapping[str, float], nobodys: float
) -> None:
    """A stranger had 920 MiB in each of six containers of 512; honest ones were ended by the first mend of that."""
    monkeypatch.setattr("convgpu.core.audit.listed._FREED", 0.0)
    assert audited(tmp_path, scene) == (over, pytest.approx(nobodys, abs=0.1))
