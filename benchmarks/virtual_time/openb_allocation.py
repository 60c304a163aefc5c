"""How much of openb's 6,212 cards is given out when pods ask for 130 % of them: best fit, as published and ours.

The reference is the simulator of FGD (USENIX ATC'23; hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0), which
published 93.08 % for best fit, the mean of ten seeds. This is our own code for its semantics: all pods in random order,
more drawn until they ask for 130 % of the cards; none ends; a pod goes to the node that is left with the least, half
processors and half cards, in whole hundredths, and there to the fullest card.

Beside it the placement of `convgpu simulate`, which knows cards and nothing else: the fullest card, the node with the
fewest free ones.

Needs openb's lists of nodes and pods in the folder of CONVGPU_TRACES (docs/simulation.md); they are not shipped.
"""

import csv
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _report import Figure, at_most, report

from convgpu.simulate.cluster.cards import Cards
from convgpu.simulate.cluster.jobs import Job, Request

SEEDS = 10
STUDENT = 2.262  # of 9 degrees of freedom, 95 %
DEMAND = 1.3
PUBLISHED, APART = 93.08, 0.3  # %
WHOLE = 1000  # of a card
PROCESSORS, CARDS = 128_000, 8_000  # the largest node's, by which the reference divides


@dataclass(frozen=True)
class Pod:
    """What a pod asks for; `share` of each card, in thousandths."""

    processors: int
    memory: int
    cards: int
    share: int
    models: frozenset[str]


@dataclass
class Node:
    """What a node has left."""

    processors: int
    memory: int
    model: str
    cards: list[int]
    left: int

    def fits(self, pod: Pod) -> bool:
        """Whether the pod can have all that it asks for."""
        if pod.processors > self.processors or pod.memory > self.memory:
            return False
        if not pod.cards:
            return True
        if pod.models and self.model not in pod.models:
            return False
        return pod.cards * pod.share <= self.left and sum(card >= pod.share for card in self.cards) >= pod.cards

    def score(self, pod: Pod) -> int:
        """How well it fits; the highest is best."""
        left = (self.processors - pod.processors) / PROCESSORS + (self.left - pod.cards * pod.share) / CARDS
        return int((1 - left / 2) * 100)

    def take(self, pod: Pod) -> None:
        """Give the pod what it asks for."""
        self.processors -= pod.processors
        self.memory -= pod.memory
        fullest = sorted((card, place) for place, card in enumerate(self.cards) if card >= pod.share)
        for _, place in fullest[: pod.cards]:
            self.cards[place] -= pod.share
        self.left = sum(self.cards)


def read_nodes(folder: Path) -> Iterator[Node]:
    """Yield the nodes with cards, by name."""
    with (folder / "openb_node_list_gpu_node.csv").open() as file:
        for row in sorted(csv.DictReader(file), key=lambda row: row["sn"]):
            cards = [WHOLE] * int(row["gpu"])
            yield Node(int(row["cpu_milli"]), int(row["memory_mib"]), row["model"], cards, sum(cards))


def read_pods(folder: Path) -> Iterator[Pod]:
    """Yield all pods, those without cards as well."""
    with (folder / "openb_pod_list_default.csv").open() as file:
        for row in csv.DictReader(file):
            models = frozenset(row["gpu_spec"].split("|")) if row["gpu_spec"] else frozenset[str]()
            sizes = (int(row[name] or 0) for name in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"))
            yield Pod(*sizes, models)


def asked(pods: Sequence[Pod], all_cards: int, rng: random.Random) -> list[Pod]:
    """Return the pods in random order, and more until they ask for DEMAND of the cards."""
    dealt = rng.sample(pods, len(pods))
    total = sum(pod.cards * pod.share for pod in dealt)
    while total <= DEMAND * all_cards:
        dealt.append(rng.choice(pods))
        total += dealt[-1].cards * dealt[-1].share
    return dealt[:-1]


def as_published(nodes: Sequence[Node], dealt: Sequence[Pod]) -> float:
    """Return the share of the cards that is given out, in %."""
    room = [replace(node, cards=list(node.cards)) for node in nodes]
    for pod in dealt:
        best = max((node for node in room if node.fits(pod)), key=lambda node: node.score(pod), default=None)
        if best is not None:
            best.take(pod)
    return 100 - 100 * sum(node.left for node in room) / sum(node.left for node in nodes)


def ours(nodes: Sequence[Node], dealt: Sequence[Pod]) -> float:
    """Return the same by the placement of `convgpu simulate`, which knows neither processors nor models."""
    cards = Cards([len(node.cards) for node in nodes], 1_000_000)
    for number, pod in enumerate(pod for pod in dealt if pod.cards):
        request = Request(str(number), 0.0, 1.0, pod.cards, pod.share / WHOLE, pod.share / WHOLE)
        place = cards.fit(request)
        if place:
            cards.take(Job(request, 1.0, known=False), place)
    return 100 - 100 * sum(cards.free) / len(cards.free)


def main() -> None:
    """Play all seeds."""
    name = os.environ.get("CONVGPU_TRACES")
    if not name:
        sys.exit("openb-allocation: NOT RUN: no folder of traces; CONVGPU_TRACES names one (docs/simulation.md)")
    nodes, pods = list(read_nodes(Path(name))), list(read_pods(Path(name)))
    all_cards = sum(node.left for node in nodes)
    dealt = [asked(pods, all_cards, random.Random(seed)) for seed in range(SEEDS)]  # noqa: S311 - the same each time
    published = [as_published(nodes, one) for one in dealt]
    own = [ours(nodes, one) for one in dealt]
    half = STUDENT / SEEDS**0.5
    report(
        "openb-allocation",
        [
            Figure("cards", all_cards / WHOLE, ""),
            Figure("best fit as published, given out", statistics.fmean(published), "%"),
            Figure("  half the 95 % interval", half * statistics.stdev(published), "%"),
            at_most("  apart from the published 93.08 %", abs(statistics.fmean(published) - PUBLISHED), "%", APART),
            Figure("placement of convgpu simulate, given out", statistics.fmean(own), "%"),
            Figure("  half the 95 % interval", half * statistics.stdev(own), "%"),
        ],
    )


if __name__ == "__main__":
    main()
