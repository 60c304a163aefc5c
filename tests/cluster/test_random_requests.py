"""Random requests of plain Slurm and of ours: no share is ever split over cards, and no card above its capacity."""

import random
from collections import Counter

import pytest
from four_nodes import CARD

pytestmark = pytest.mark.slurm

REQUESTS = 16


def request(rng):
    """Return the words of one request, for one task to four on one node or two."""
    nodes, tasks = rng.choice([(1, 1), (1, 1), (1, 2), (2, 1), (2, 2)])
    size = rng.randint(1, CARD)
    forms = (f"--gres=gpumem:{size}G", f"--gres=shard:{size}", f"--gres=gpumem:{size * 1024}M")
    share = rng.choice([*forms, f"--tres-per-task=gres/shard:{size}"])
    return (f"--nodes={nodes}", f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}", share), nodes, tasks, size


def with_cards(shares):
    """Leave out nodes whose Prolog came so late that the job had ended on the others: Slurm gave it nothing there."""
    return {node: cards for node, cards in shares.items() if cards}


def test_random_requests_never_split_a_share_or_overfill_a_card(cluster):
    rng = random.Random(1)  # noqa: S311 - the same requests each time
    asked = {}
    for _ in range(REQUESTS):
        words, nodes, tasks, size = request(rng)
        # Long enough to be seen on a slow host: at a load of 20 five of 16 were that took up to a second.
        asked[cluster.sbatch(*words, wrap=f"sleep {1 + 2 * rng.random():.2f}")] = (nodes, tasks, size)
    seen = {}

    def all_have_ended():
        shares = {job: found for job in asked if (found := with_cards(cluster.shares(job)))}
        used = Counter()
        for found in shares.values():
            for cards in found.values():
                used.update(dict(cards))
        assert all(size <= CARD for size in used.values()), (used, shares)
        for job, found in shares.items():
            if len(found) >= len(seen.get(job, {})):
                seen[job] = found
        return not cluster.nodes("squeue", "-h")

    cluster.wait_for("all jobs have ended", all_have_ended, 600)
    for job, found in seen.items():
        _nodes, tasks, size = asked[job]
        for cards in found.values():
            assert [share for _, share in cards] == [size] * tasks, (job, asked[job], found)
    assert len(seen) > REQUESTS // 2
    states = cluster.nodes("squeue", "-h", "-t", "all", "-o", "%T", "-j", ",".join(map(str, asked))).split()
    assert Counter(states) == {"COMPLETED": REQUESTS}
