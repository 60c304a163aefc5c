"""Some kills of the storm, the same each time: one for each process and each part of a move (`make storm` does all)."""

from collections.abc import Iterator

import pytest
from built import build_driver, build_hook, build_porter
from members import Host, running_host

from storm import Kill, run_round

KILLS = (
    Kill("out", "porter call cuMemUnmap", "itself", 1),
    Kill("in", "program sent IN", "porter"),
    Kill("exchange", "scheduler got MOVED", "itself"),
    Kill("exchange", "porter sent MOVED", "a"),
    Kill("new porter", "program send HELD", "itself"),
    Kill("in", "scheduler sent GO", "porter"),
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    for build in (build_driver, build_hook, build_porter):
        build()
    with running_host(tmp_path_factory.mktemp("s")) as host:
        yield host
        host.end()


@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_a_kill_at_a_step_of_a_move_loses_nothing(host: Host, kill: Kill) -> None:
    assert run_round(host, kill), "the step was not reached"


def test_steps_have_the_names_of_frames_and_calls(host: Host) -> None:
    host.ask(set())
    host.settle()
    host.plan.begin_list()
    host.ask({"a"})
    host.check()
    steps = host.plan.end_list()
    assert {"scheduler sent STOP", "program send OUT", "porter call cuMemMap", "porter sent COPIED"} <= set(steps)
