"""Kill -9 at every step of a move: the steps are found by listing them, and each is combined with each victim.

A round brings the containers into a state, plans a kill, and does something. Whoever was killed is started again, and
then everything must be where it was asked to be: `Host.check`.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from daemon import wait_until
from members import BOUND, NAMES, Host
from steps import ITSELF

VICTIMS: Final = ("itself", "a", "b", "porter", "scheduler")
BOTH: Final = set(NAMES)


@dataclass(frozen=True)
class Action:
    """What is done while the kill is planned: from a state in which `before` are out.

    Each program greets a new porter: that many have to, before the action counts as over.
    """

    before: frozenset[str]
    do: Callable[[Host], None]
    greetings: int = 0

    def is_over(self, host: Host) -> bool:
        """Return whether the kill has happened, or all is where it is to be."""
        greeted = host.plan.listed()["porter got READY"] >= self.greetings
        return bool(host.plan.killed) or (greeted and host.has_arrived())


ACTIONS: Final = {
    "out": Action(frozenset(), lambda host: host.ask(BOTH)),
    "in": Action(frozenset(BOTH), lambda host: host.ask(set())),
    "exchange": Action(frozenset("a"), lambda host: host.ask({"b"})),
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

    def __str__(self) -> str:
        return f"{self.action}: {self.victim} at `{self.step}`, {self.skip + 1}."


def prepare(host: Host, action: str) -> None:
    host.ask(set(ACTIONS[action].before))
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
    """Yield every combination in an order that the seed gives, then again with the next skip, without end."""
    chance = random.Random(seed)  # noqa: S311 - an order of tests
    skip = 0
    while True:
        found = [Kill(name, step, victim, skip) for name in steps for step in steps[name] for victim in victims]
        chance.shuffle(found)
        yield from found
        skip += 1


def run_round(host: Host, kill: Kill) -> bool:
    """Carry one kill out and check everything; return whether the step was reached."""
    prepare(host, kill.action)
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
