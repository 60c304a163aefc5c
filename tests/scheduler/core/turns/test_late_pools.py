"""Host memory that comes when containers hold memory already, as with the first container whose memory may leave."""

from elastic_host import ElasticHost

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.policies.memory import Fifo


def make_host(limit: int) -> tuple[ElasticHost, dict[str, int]]:
    """Return a host of 10 on which rigid `a` has 5 and `b` 2, both of so much, and elastic `e` came with a pool."""
    host = ElasticHost(Machine({"gpu": 10}, Fifo()))
    sessions = {}
    for name, size in (("a", 5), ("b", 2)):
        host.create(name, {"gpu": limit})
        sessions[name] = host.start(name)
        host.allocate(sessions[name], size)
    host.create_elastic("e", {"gpu": 4}, 0)
    sessions["e"] = host.start("e")
    host.enable(sessions["e"])
    host.set_pool("gpu", 10, 1)
    host.check()
    return host, sessions


def test_rigid_containers_that_fit_one_after_the_other_do_not_wait_for_each_other_for_ever() -> None:
    host, sessions = make_host(8)
    of_b = host.allocate(sessions["b"], 3)  # b would have 5, and no room was left for either of both
    of_a = host.allocate(sessions["a"], 3)
    assert (of_a in host.answers, of_b in host.pending) == (True, True)
    of_e = host.allocate(sessions["e"], 4)
    assert of_e in host.pending
    host.check()
    host.finish("a")
    assert (of_b in host.answers, of_e in host.answers) == (True, False)  # beside b's 8 there is no room for 4
    host.finish("b")
    assert of_e in host.answers
    host.check()


def test_the_pool_is_granted_as_soon_as_what_cannot_leave_fits() -> None:
    host, sessions = make_host(8)
    assert host.machine.device("gpu").usable == 10
    host.finish("b")
    assert host.machine.device("gpu").usable == 20
    assert host.allocate(sessions["e"], 4) in host.pending  # beside a's 8
    host.check()


def test_what_a_container_without_a_process_was_granted_is_taken_back_for_it() -> None:
    host, sessions = make_host(8)
    host.end(sessions["b"])
    host.end(sessions["a"])
    of_e = host.allocate(sessions["e"], 4)
    assert (of_e in host.answers, host.machine.device("gpu").usable) == (True, 20)
    host.check()


def test_what_fits_is_promised_at_once_and_a_smaller_pool_counts_at_once() -> None:
    host, _ = make_host(5)
    assert host.machine.device("gpu").usable == 20
    host.set_pool("gpu", 4, 1)
    assert host.machine.device("gpu").usable == 14
    host.check()


def test_what_is_granted_of_the_pool_waits_for_the_card_when_all_have_gone_whose_memory_could_leave() -> None:
    """The pool stays a minute. External memory came: the card had no room, and the grant was answered at once."""
    host = ElasticHost(Machine({"gpu": 10}, Fifo()))
    host.create_elastic("e", {"gpu": 4}, 0)
    host.set_pool("gpu", 10, 1)
    host.remove("e")
    host.create("a", {"gpu": 10})
    first, second = host.start("a"), host.start("a")
    host.allocate(first, 7)
    host.dispatch(e.CapacityChanged("gpu", 4, 10))
    waits = host.allocate(second, 1)
    assert waits in host.pending
    host.dispatch(e.CapacityChanged("gpu", 10, 10))
    assert waits in host.answers


def test_a_restart_brings_no_pool_into_force_that_was_kept_back() -> None:
    """Who came back could have been granted of it, so it counted at once, and each of both waited for the other."""
    host = ElasticHost(Machine({"gpu": 10}, Fifo(), recovering=True))
    host.create_elastic("e", {"gpu": 4}, 0)
    host.set_pool("gpu", 10, 1)
    for name in ("a", "b"):
        host.create(name, {"gpu": 8})
    a, b = host.start("a", held={"gpu": 5}), host.start("b", held={"gpu": 2})
    host.dispatch(e.RecoveryEnded())
    of_b, of_a = host.allocate(b, 3), host.allocate(a, 3)
    assert (of_a in host.answers, of_b in host.pending) == (True, True)
    host.finish("a")
    assert of_b in host.answers
    host.check()
