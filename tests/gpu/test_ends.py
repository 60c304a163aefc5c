"""Twenty times a container that holds most of the card ends, in three ways, while another waits for all of it."""

import statistics
import time

import pytest
from card import Card, FreeMemory
from containers import GIB, SIMULATED, Container, Start, docker, wait_until
from plugin_api import PluginApi

pytestmark = pytest.mark.skipif(SIMULATED, reason="a rehearsal has no PyTorch; tests/hook has the simulated form")

TURNS = 20
ENDS = ("SIGKILL", "exit", "docker stop")


def end(container: Container, how: str) -> None:
    if how == "docker stop":
        docker("stop", "-t", "1", container.name)
    else:
        container.signal("KILL" if how == "SIGKILL" else "USR1")


def test_a_waiter_is_never_refused_however_often_a_holder_ends(
    start: Start, plugin: PluginApi, card: Card, figures: dict[str, object], share: int
) -> None:
    size = share * GIB
    limit = f"{share + max(card.total // GIB // 28, 1)}g"
    turns = []
    holder = start("0", limit, "large.py", size)
    holder.wait_for("holding")
    for turn in range(TURNS):
        how = ENDS[turn % len(ENDS)]
        waiter = start(str(turn + 1), limit, "large.py", size)
        waiter.wait_for("asking")
        wait_until(lambda one=waiter: plugin.events(one.volume, "paused"), "the second is paused")
        with FreeMemory(card, size) as free:
            begin = time.time()
            end(holder, how)
            holding = waiter.wait_for("holding")
        holder.remove()
        freed = None if free.since is None else free.since - begin
        turns.append({"how": how, "freed": freed, "returned": holding["returned"] - begin})
        holder = waiter
    holder.signal("USR1")
    assert holder.wait() == 0
    figures["ends"] = {"size": size, "turns": turns} | {
        how: statistics.median(
            turn["returned"] - turn["freed"] for turn in turns if turn["how"] == how and turn["freed"] is not None
        )
        for how in ENDS
    }
    assert len(turns) == TURNS
