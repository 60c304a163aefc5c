"""An admitted container whose reserve is incomplete, because facts took of it, is served as soon as it can be."""

import pytest
from checked_host import CheckedHost
from elastic_host import ElasticHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def test_what_was_found_unsafe_is_what_was_lacking_then_and_not_a_whole_request() -> None:
    """It lacks 4, of which the other one needs 1 to end; when it frees 1 it lacks 3, and nothing woke it."""
    host = CheckedHost(Machine({"gpu": 10}, Fifo(), recovering=True))
    host.create("whole", {"gpu": 8}, is_whole=True)
    host.create("other", {"gpu": 2})
    host.dispatch(e.CapacityChanged("gpu", 7, 10))  # so not all of the limit can be reserved again
    whole = host.start("whole", held={"gpu": 2})
    host.start("other", held={"gpu": 1})
    host.dispatch(e.RecoveryEnded())
    waits = host.allocate(whole, 4)
    assert waits in host.pending
    host.free(whole, 1)
    assert isinstance(host.answers[waits], e.Accept)
    host.check()


@pytest.mark.parametrize("asks_first", [True, False])
def test_what_waited_before_its_container_counted_as_admitted_counts_its_reserve(asks_first: bool) -> None:
    """After a restart: of 20 the others came back with 6, so that not all of its limit could be reserved again."""
    host = CheckedHost(Machine({"gpu": 20}, Fifo(), recovering=True))
    host.create("whole", {"gpu": 20}, is_whole=True)
    host.create("other", {"gpu": 6})
    third = host.start("whole")
    waits = host.allocate(third, 8) if asks_first else 0
    host.start("whole", held={"gpu": 2})
    second = host.start("whole", held={"gpu": 6})
    waits = waits or host.allocate(third, 8)
    host.start("other", held={"gpu": 6})
    host.end(second)
    host.dispatch(e.RecoveryEnded())
    assert isinstance(host.answers[waits], e.Accept)
    host.check()


def test_no_admission_brings_more_than_the_limit_that_is_in_force() -> None:
    """A raise waited for room on the card, and what lay between both limits was leased out of the lower one."""
    host = ElasticHost(Machine({"gpu": 18}, Fifo()))
    host.set_pool("gpu", 20, 1)
    host.create_elastic("e", {"gpu": 10}, 0)
    elastic = host.start("e")
    host.enable(elastic)
    host.allocate(elastic, 1)
    host.create("whole", {"gpu": 8}, is_whole=True)
    whole = host.start("whole")
    host.dispatch(e.LimitsChanged("whole", {"gpu": 17}))
    beyond = host.allocate(whole, 9)
    assert isinstance(host.answers[beyond], e.Reject)
    assert host.allocate(whole, 8) in host.answers
    host.check()
