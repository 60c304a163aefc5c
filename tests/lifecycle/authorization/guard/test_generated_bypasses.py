"""Drawn attempts to get a GPU without a limit, or the host, on a real Engine in guard; none reaches it.

CONVGPU_SEED=N draws others, and CONVGPU_COUNT=N so many; `make test` plays 99 of seed 1.
"""

import os
import random
import signal
from collections import Counter

import generated_bypasses
import pytest
from generated_bypasses import FAMILIES, LINKED, Ground
from raw_engine import DENIED, Call
from strict_run import run_in

pytestmark = pytest.mark.engine

SEED = int(os.environ.get("CONVGPU_SEED", "1"))
COUNT = int(os.environ.get("CONVGPU_COUNT", "99"))
NUMBERS = {f"{list(FAMILIES)[n % len(FAMILIES)]} {n // len(FAMILIES)}": n for n in range(COUNT)}
LINKS = {"to-etc": "/etc", "to-root": "/", "to-run": "run", "a/b/far": "../../tmp/../to-root/etc"}
ENDED = Counter()


def drawn(name, ground):
    draw = random.Random(f"{SEED} {name}")  # noqa: S311 - attempts of a test
    return FAMILIES[name.rpartition(" ")[0]](draw, ground)


@pytest.fixture(scope="module")
def images(guard):
    guard.configure({"authorization-plugins": []})
    script = "; ".join(["mkdir -p /a/b", *(f"ln -s {target} /{link}" for link, target in LINKS.items())])
    made = guard("create", "--network", "none", "convgpu/demo", "sh", "-c", script)
    guard("start", "-a", made)
    guard("commit", "-c", 'CMD ["true"]', made, LINKED)
    guard("rm", made)
    guard.configure({"authorization-plugins": ["convgpu"]})
    yield
    guard("image", "rm", "-f", LINKED)


@pytest.fixture
def ground(guard, folder, request):
    own = folder / request.node.callspec.params["name"].replace(" ", "-")
    own.mkdir()
    return Ground(own, guard.directory / "data", guard.directory_of("convgpu"), guard.process.pid)


class Played:
    """An attempt that is played to its end; what it made is removed.

    Attributes:
        reached: what it should not.
        refused: by which of us or of the Engine; empty if by nobody.
    """

    def __init__(self, guard, raw, attempt):
        self._guard, self._raw, self.attempt = guard, raw, attempt
        self.reached, self.refused, self._container = False, "", ""
        try:
            self._play()
        finally:
            raw.remove(self._container or "none")
            if attempt.volume is not None:
                raw.send(Call("DELETE", f"/volumes/{attempt.volume['Name']}"))

    def _passes(self, answer):
        if answer.status in (200, 201, 204):
            return True
        text = answer.raw.decode(errors="replace")
        self.refused = text.partition(f"{DENIED} convgpu:latest: ")[2].partition(":")[0]
        if not self.refused:
            self.refused = "the runtime" if "convgpu: " in text else f"the Engine: {text.strip()}"
        return False

    def _play(self):
        attempt = self.attempt
        if attempt.volume is not None and not self._passes(self._raw.post("/volumes/create", attempt.volume)):
            return
        created = self._raw.post("/containers/create", attempt.body())
        if not self._passes(created):
            return
        self._container = created.json["Id"]
        if attempt.archive and not self._passes(self._copy()):
            return
        if attempt.swap is not None and not attempt.again:
            attempt.swap()
        if self._passes(self._raw.post(f"/containers/{self._container}/start")):
            self._look()
            if attempt.again:
                self._start_again()

    def _copy(self):
        uri = f"/v1.41/containers/{self._container}/archive?path={self.attempt.archive}"
        return self._raw.send(Call("PUT", uri, generated_bypasses.archive(), {"Content-Type": "application/x-tar"}))

    def _look(self):
        self.reached |= "REACHED" in run_in(self._raw, self._container, self.attempt.probe)

    def _state(self):
        return self._raw.get(f"/containers/{self._container}/json")

    def _start_again(self):
        attempt = self.attempt
        assert not self.reached
        if attempt.update:
            policy = {"RestartPolicy": {"Name": attempt.again}}
            if not self._passes(self._raw.post(f"/containers/{self._container}/update", policy)):
                return
        attempt.swap()
        os.kill(self._state()["State"]["Pid"], signal.SIGKILL)
        if attempt.again == "start":
            self._guard.wait_for("it has ended", lambda: not self._state()["State"]["Running"])
            if self._passes(self._raw.post(f"/containers/{self._container}/start")):
                self._look()
            return
        self._guard.wait_for("its policy was tried", self._was_tried)
        if self._state()["State"]["Running"]:
            self._look()
        elif (error := self._state()["State"]["Error"]) and not self.refused:
            self.refused = "the runtime" if "convgpu: " in error else f"the Engine: {error}"

    def _was_tried(self):
        seen = self._state()
        runs = seen["State"]["Running"] and not seen["State"]["Restarting"]
        return seen["State"]["Error"] or (seen["RestartCount"] and runs)


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("name", NUMBERS)
def test_it_does_not_get_through(guard, raw, ground, name):
    attempt = drawn(name, ground)
    played = Played(guard, raw, attempt)
    by = played.refused.partition(":")[0] or "nobody"
    print(name, "|", by, "|", attempt.archive, attempt.again, attempt.host)
    ENDED[by] += 1
    assert not played.reached, (attempt, attempt.body())
    assert not attempt.ours or (played.refused and "the Engine" not in played.refused), attempt


def test_most_are_refused_by_us():
    if ENDED.total() == COUNT:
        print(dict(ENDED))
        assert ENDED["the Engine"] + ENDED["nobody"] < COUNT // 3


@pytest.fixture
def unguarded(guard):
    guard.configure({"authorization-plugins": []})
    yield
    guard.configure({"authorization-plugins": ["convgpu"]})


WORKING = [
    family for family in FAMILIES if family.startswith(("paths", "links to volumes", "times of d", "times of b"))
]


@pytest.mark.usefixtures("images", "unguarded")
@pytest.mark.parametrize("name", WORKING)
def test_some_of_each_class_work_without_us(guard, raw, folder, name):
    for number in range(20):
        top = folder / f"unguarded {name} {number}"
        top.mkdir()
        place = Ground(top, guard.directory / "data", guard.directory_of("convgpu"), guard.process.pid)
        attempt = drawn(f"{name} {number}", place)
        attempt.host["Runtime"] = "other"
        if Played(guard, raw, attempt).reached:
            return
    pytest.fail("nothing was reached: the attempts of this class are none")
