"""No turn waits for ever: containers on full cards pause and end, and others come that may pass who is overdue.

`test_residency` tries every event, and so this case seldom. No facts here end a proof. `TurnOracle` holds
each turn that is given behind an overdue one against all that the others could do, and follows the bound.
"""

import os

from elastic_host import ElasticHost
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rounds import rounds

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.residency import events as r
from convgpu.policies.memory import make_policy

PHASES = set(Phase) - {Phase.shrink}
EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", rounds(200, few=40)))
TIMEOUT = 5.0
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(1, 12)), min_size=30, max_size=80)


class Cards:
    """One or two cards, on which containers come, allocate more, and end."""

    def __init__(self, devices: int) -> None:
        self.devices = [f"g{number}" for number in range(devices)]
        machine = Machine(dict.fromkeys(self.devices, 24), make_policy("best-fit", seed=1), TIMEOUT, switch_cost=0.0)
        self.host = ElasticHost(machine)
        for device in self.devices:
            self.host.set_pool(device, 1000, 1)
        self.count = 0

    def come(self, size: int, fixed: int) -> None:
        """Let a container come that may have twice what it allocates first, on all cards."""
        self.count += 1
        name = f"c{self.count}"
        self.host.create_elastic(name, dict.fromkeys(self.devices, 2 * size), fixed)
        session = self.host.start(name)
        self.host.enable(session)
        self.host.allocate(session, size, self.devices[self.count % len(self.devices)])

    def running(self) -> list[int]:
        blocked = {asked.session for asked in self.host.pending.values()}
        return [s for s in self.host.processes if s not in blocked and self.host.gates[s].is_open]

    def settle(self) -> None:
        """Carry out all moves."""
        while True:
            for session, gate in self.host.gates.items():
                if gate.must_stop:
                    self.host.answer_stop(session, r.StopOutcome.DRAINED)
                    break
                moves = [("out", *move) for move in gate.evicting.items()]
                moves += [("in", *move) for move in gate.restoring.items()]
                if move := next((move for move in moves if move[2]), None):
                    self.host.move(session, *move)
                    break
            else:
                return

    def play(self, what: int, who: int, size: int) -> None:
        running = self.running()
        if what < 4 or not running:
            self.come(size, fixed=what % 2)
        elif what < 6:
            session = running[who % len(running)]
            accounts = self.host.machine.accounts(self.host.processes[session].container)
            used = self.host.processes[session].used
            device = max(accounts, key=lambda d: accounts[d].limit - used[d])
            if size <= accounts[device].limit - used[device]:
                self.host.allocate(session, size, device)
        elif what < 8:
            self.host.end(running[who % len(running)])
        else:
            self.host.now += 2 * TIMEOUT
            self.host.dispatch(e.TimePassed())


@given(devices=st.integers(1, 2), steps=STEPS)
@settings(max_examples=EXAMPLES, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_overdue_turn_waits_for_a_pause_or_end_of_each_that_had_its_turn_before(
    devices: int, steps: list[tuple[int, int, int]]
) -> None:
    cards = Cards(devices)
    for what, who, size in steps:
        cards.play(what, who, size)
        cards.settle()
        cards.host.check()
        cards.host.turn_oracle.follow()
