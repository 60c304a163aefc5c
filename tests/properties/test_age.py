"""No allocation waits for ever: a few containers on full devices allocate, free, allocate again, and get other limits.

`test_histories` tries every event, and so this case seldom. `CheckedHost` holds every answer against invariant 5. At
the end every process that can run ends, and then every allocation has to have been served.
"""

import os

import pytest
from checked_host import CheckedHost
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rounds import rounds

from convgpu.core import events as e
from convgpu.core.allocation.admission import GANG_TIMEOUT
from convgpu.core.machine import Machine
from convgpu.policies.memory import POLICIES, make_policy

PHASES = set(Phase) - {Phase.shrink}
EXAMPLES = int(os.environ.get("CONVGPU_EXAMPLES", rounds(40, few=15)))
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(1, 8)), min_size=40, max_size=100)


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(
    devices=st.integers(1, 2),
    limits=st.lists(st.integers(3, 10), min_size=4, max_size=7),
    steps=STEPS,
    kinds=st.lists(st.sampled_from(["", "", "whole", "gang"]), min_size=7, max_size=7),
)
@settings(max_examples=EXAMPLES, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))
def test_age_bounds_every_choice(
    name: str, devices: int, limits: list[int], steps: list[tuple[int, int, int]], kinds: list[str]
) -> None:
    capacity = {f"g{number}": 10 for number in range(devices)}
    host = CheckedHost(Machine(capacity, make_policy(name, seed=1), 5.0))
    containers: list[str] = []
    members = kinds[: len(limits)].count("gang")
    for number, (limit, kind) in enumerate(zip(limits, kinds, strict=False)):
        own = max(min(limit, 10 // members), 1) if kind == "gang" else limit
        host.create(
            f"c{number}",
            dict.fromkeys(capacity, own),
            priority=5 * (number % 3) - 5,
            is_whole=kind == "whole",
            gang="g" if kind == "gang" else "",
        )
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
        elif what == 1 and size > 4 and not host.terms[containers[place]].gang:
            host.dispatch(e.LimitsChanged(containers[place], {device: 2 * size - 8}))
        elif what == 1:
            host.dispatch(e.PolicyChosen(sorted(POLICIES)[size % len(POLICIES)], seed=1))
        elif what < 4 and used:
            host.free(session, min(size, used), device)
        elif all(asked.session != session for asked in host.pending.values()):
            host.allocate(session, size, device, is_context=what == 4)
        host.check()
    end_all(host)


def end_all(host: CheckedHost) -> None:
    """End every process that can run until nothing waits; containers of a gang that runs wait for each other."""
    while host.pending:
        host.now += GANG_TIMEOUT  # rejects those of a gang that never comes
        host.dispatch(e.TimePassed())
        blocked = {host.processes[asked.session].container for asked in host.pending.values()}
        state = host.machine._state
        if any(state.containers[container].is_admitted and state.containers[container].gang for container in blocked):
            blocked |= state.gangs["g"].keys()
        runnable = [session for session, process in host.processes.items() if process.container not in blocked]
        assert runnable or not host.pending, f"deadlock: {host.pending}"
        for session in runnable:
            host.end(session)
