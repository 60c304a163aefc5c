"""Memory leaves and comes back while threads submit work: none of it goes past the gate."""

from elastic_process import Elastic
from hooked_program import SUCCESS
from rounds import rounds
from scripted_session import MIB

from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Outcome

THREADS, FILLS, CYCLES = 4, rounds(30, few=15), rounds(8, few=4)


def test_threads_that_submit_all_the_while_lose_nothing(elastic: Elastic) -> None:
    """A submission that went past the gate would end the context: its memory is not mapped."""
    addresses = []
    for thread in range(THREADS):
        elastic.call("join", thread)
        addresses.append(elastic.call(f"alloc {4 * MIB}", thread))
    for value in range(1, FILLS + 1):
        for thread, address in enumerate(addresses):
            elastic.program.begin(f"fill {address} {4 * MIB} {value}", thread)
    for epoch in range(1, CYCLES + 1):
        elastic.order(r.Stop(epoch, 10000))
        answer = elastic.told()
        while not isinstance(answer, r.Stopped):
            answer = elastic.told()
        assert answer.outcome == Outcome.DRAINED
        for order in (r.Evict(epoch, 0, 16 * MIB), r.Restore(epoch, 0, 16 * MIB)):
            elastic.order(order)
            for _piece in range(THREADS):
                elastic.porter.serve()
            moved = 0
            while moved < 16 * MIB:
                report = elastic.told()
                moved += report.size if isinstance(report, r.Evicted | r.Restored) else 0
        elastic.order(r.Go(epoch))
    assert all(elastic.program.result(thread).code == SUCCESS for thread in range(THREADS) for _fill in range(FILLS))
    assert [elastic.call(f"compare {address} {4 * MIB} {FILLS}") for address in addresses] == [0] * THREADS
