"""What frameworks hold leaves the card and comes back, and they compute the same: hook and porter, no containers.

What a framework takes by calls whose memory cannot move yet (pools of cudaMallocAsync, its own cuMemCreate) stays.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from card import Card
from conductor import PORTER, ROOT, Conductor
from containers import GIB, SIMULATED

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no frameworks")

HELD = 4 * GIB  # and more: what is computed with
MOVES = {"torch", "torch-graph", "triton", "cupy"}
STAYS = {"torch-expandable", "torch-async", "cupy-async", "jax"}
POOLS = {"torch-async", "cupy-async"}  # what they hold unused goes back to the driver when the process is stopped
FOLDER = ROOT / "tests/gpu/programs"


@pytest.fixture(scope="module")
def conductor(card: Card, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conductor]:
    if not PORTER.exists():
        pytest.skip("the porter is not built: make -C porter")
    conductor = Conductor(tmp_path_factory.mktemp("moving"), card.uuid, card.total, None, 12 * GIB)
    yield conductor
    conductor.close()


@pytest.mark.parametrize("name", sorted(MOVES | STAYS))
def test_a_framework_computes_the_same_after_its_memory_was_away(
    conductor: Conductor, card: Card, figures: dict[str, object], tmp_path: Path, name: str
) -> None:
    member = conductor.start(tmp_path.name, "python3", FOLDER / "moving.py", name, cwd=FOLDER)
    ready = json.loads(member.answer())
    conductor.wait_for_pool()
    for _ in range(2):
        before = card.used_by()[member.process.pid]
        moved = member.suspend_all()
        left = before - card.used_by()[member.process.pid]
        member.resume()
        figures[f"moving {name}"] = {"before": before, "moved": moved, "left": left}
        assert left == moved if name not in POOLS else left >= moved  # a second stop finds the pool trimmed
    assert moved >= HELD if name in MOVES else moved < before
    member.process.send_signal(signal.SIGUSR1)
    assert json.loads(member.answer()) == {"event": "again", "digest": ready["digest"], "equal": True}
    member.close()


def test_pointer_attributes_but_ipc_are_those_of_an_allocation_that_stays(
    conductor: Conductor, figures: dict[str, object], tmp_path: Path
) -> None:
    hooked = conductor.start(tmp_path.name, "python3", Path(__file__).parent / "attributes.py")
    native = conductor.spawn(None, "python3", Path(__file__).parent / "attributes.py")
    found, wanted = json.loads(hooked.answer()), json.loads(native.communicate(timeout=60)[0])
    hooked.close()
    figures["pointer attributes"] = {"backed": found, "native": wanted}
    assert (found.pop("legacy IPC"), wanted.pop("legacy IPC")) == (0, 1)  # cuIpcGetMemHandle refuses it
    assert found == wanted
