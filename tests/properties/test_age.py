"""No allocation waits for ever: a few containers on full devices allocate, free, allocate again, and get other limits.

`test_histories` tries every event, and so this case seldom. `CheckedHost` holds every answer against invariant 5. At
the end every process that can run ends, and then every allocation has to have been served.
"""

import os

import pytest
from checked_host import CheckedHost
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import POLICIES, make_policy

PHASES = set(Phase) - {Phase.shrink}
EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", "60"))
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(1, 8)), min_size=40, max_size=100)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(devices=st.integers(1, 2), limits=st.lists(st.integers(3, 10), min_size=4, max_size=7), steps=STEPS)
@settings(max_examples=EXAMPLES, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_age_bounds_every_choice(name: str, devices: int, limits: list[int], steps: list[tuple[int, int, int]]) -> None:
    capacity = {f"g{number}": 10 for number in range(devices)}
    host = CheckedHost(Machine(capacity, make_policy(name, seed=1), 5.0))
    containers: list[str] = []
    for number, limit in enumerate(limits):
        host.create(f"c{number}", dict.fromkeys(capacity, limit), priority=5 * (number % 3) - 5)
        containers += [f"c{number}"] * (1 + number % 2)  # every second container has two processes
    sessions = [host.start(container) for container in containers]
    for who, what, size in steps:
        host.now += 1.0
        place = who % len(sessions)
        session = sessions[place]
        device = f"g{size % devices}"
        used = host.processes[session].used[device]
        if what == 0:
            host.end(session)
            sessions[place] = host.start(containers[place])
        elif what == 1 and size > 4:
            host.dispatch(e.LimitsChanged(containers[place], {device: 2 * size - 8}))
        elif what == 1:
            host.dispatch(e.PolicyChosen(sorted(POLICIES)[size % len(POLICIES)], seed=1))
        elif what < 4 and used:
            host.free(session, min(size, used), device)
        elif all(asked.session != session for asked in host.pending.values()):
            host.allocate(session, size, device)
        host.check()
    while host.pending:
        blocked = {host.processes[asked.session].container for asked in host.pending.values()}
        runnable = [session for session, process in host.processes.items() if process.container not in blocked]
        assert runnable, f"deadlock: {host.pending}"
        for session in runnable:
            host.end(session)
