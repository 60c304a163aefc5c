"""Kill -9 at every step of a move: the steps are found by listing them, and each is combined with each victim.

A round brings the containers into a state, plans a kill, and does something. Whoever was killed is started again, and
then everything must be where it was asked to be: `Host.check`.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from daemon import wait_until
from members import BOUND, NAMES, Host, descendants
from steps import ITSELF

VICTIMS: Final = ("itself", "a", "b", "porter", "scheduler")
DEAR: Final = 5  # of so many rounds one restarts the scheduler
BOTH: Final = set(NAMES)


@dataclass(frozen=True)
class Action:
    """What is done while the kill is planned: from a state in which `before` are out; `deep`: with their contexts.

    Each program greets a new porter: that many have to, before the action counts as over.
    """

    before: frozenset[str]
    do: Callable[[Host], None]
    greetings: int = 0
    deep: frozenset[str] = frozenset()

    def is_over(self, host: Host) -> bool:
        """Return whether the kill has happened, or all is where it is to be."""
        greeted = host.plan.listed()["porter got READY"] >= self.greetings
        return bool(host.plan.killed) or (greeted and host.has_arrived())


ACTIONS: Final = {
    "out": Action(frozenset(), lambda host: host.ask(BOTH)),
    "in": Action(frozenset(BOTH), lambda host: host.ask(set())),
    "exchange": Action(frozenset("a"), lambda host: host.ask({"b"})),
    "deep out": Action(frozenset(), lambda host: host.ask(BOTH, deep=BOTH)),
    "deep in": Action(frozenset(BOTH), lambda host: host.ask(set()), deep=frozenset(BOTH)),
    "deeper": Action(frozenset(BOTH), lambda host: host.ask(BOTH, deep={"a"})),
    "deep, new scheduler": Action(frozenset("a"), lambda host: host.kill("scheduler"), len(NAMES), deep=frozenset("a")),
    "deep, new porter": Action(frozenset("a"), lambda host: host.kill("porter"), len(NAMES), deep=frozenset("a")),
    "new scheduler": Action(frozenset("a"), lambda host: host.kill("scheduler"), len(NAMES)),
    "new porter": Action(frozenset("a"), lambda host: host.kill("porter"), len(NAMES)),
}


@dataclass(frozen=True)
class Kill:
    """Who dies when: when a step of an action comes for the `skip + 1`-th time."""

    action: str
    step: str
    victim: str
    skip: int = 0

    @property
    def restarts(self) -> bool:
        """Whether the scheduler is started again."""
        dies = self.victim == "scheduler" or (self.victim == "itself" and self.step.startswith("scheduler"))
        return dies or self.action.endswith("new scheduler")

    def __str__(self) -> str:
        return f"{self.action}: {self.victim} at `{self.step}`, {self.skip + 1}."


def prepare(host: Host, action: str) -> None:
    """Bring the containers where the action begins; contexts that are to stay come back by being resumed."""
    if host.deep - ACTIONS[action].deep:
        host.ask(host.wanted - host.deep)
        host.settle()
    host.ask(set(ACTIONS[action].before), deep=set(ACTIONS[action].deep))
    host.settle()


def list_steps(host: Host) -> dict[str, list[str]]:
    """Return the steps of each action, by doing it once without a kill."""
    steps = {}
    for name, action in ACTIONS.items():
        prepare(host, name)
        host.porter()
        host.plan.begin_list()
        action.do(host)
        wait_until(partial(action.is_over, host), f"the end of {name}", BOUND)
        host.check()
        steps[name] = [step for step in host.plan.end_list() if "ADMIN" not in step]
    return steps


def kills(steps: dict[str, list[str]], seed: int, victims: Sequence[str] = VICTIMS) -> Iterator[Kill]:
    """Yield every combination in an order that the seed gives, then again with the next skip, without end.

    One in five restarts the scheduler, which takes longest.
    """
    chance = random.Random(seed)  # noqa: S311 - an order of tests
    dear, cheap = (_combinations(steps, victims, chance, restarts=restarts) for restarts in (True, False))
    for number in itertools.count():
        kill = next(dear if number % DEAR == 0 else cheap, None)
        yield kill if kill is not None else next(dear)


def _combinations(
    steps: dict[str, list[str]], victims: Sequence[str], chance: random.Random, *, restarts: bool
) -> Iterator[Kill]:
    for skip in itertools.count():
        every = [Kill(name, step, victim, skip) for name in steps for step in steps[name] for victim in victims]
        found = [kill for kill in every if kill.restarts == restarts]
        if not found:
            return
        chance.shuffle(found)
        yield from found


def run_round(host: Host, kill: Kill) -> bool:
    """Carry one kill out and check everything; return whether the step was reached."""
    prepare(host, kill.action)
    host.family = descendants(host.pid_of("scheduler"))
    host.plan.arm(kill.step, kill.skip, ITSELF if kill.victim == "itself" else host.pid_of(kill.victim))
    action = ACTIONS[kill.action]
    host.plan.begin_list()
    action.do(host)
    wait_until(lambda: action.is_over(host), "the step or the end of the action", BOUND)
    host.plan.disarm()
    killed = host.plan.killed
    if killed:
        wait_until(lambda: host.is_dead(killed), f"process {killed} is dead", BOUND)
    host.mend()
    host.check()
    return bool(killed)
