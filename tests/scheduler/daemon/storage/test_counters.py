from pathlib import Path

import msgspec

from convgpu.daemon.storage.history import Bounds, History
from convgpu.daemon.storage.store import Store
from convgpu.protocol.records import WAITS, Events


def test_events_and_waits_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path, "boot", lambda _delay, _call: None)
    history = History(lambda: 5.0, store, Bounds(rows=10, age=10.0))
    history.add("created", "v", "c")
    history.add("paused", "v", "s1.r1")
    for waited in (0.0, 0.01, 59.9, 3600.0, 3600.5):
        history.add("granted", "v", "s1.r1", waited=waited)
    history.add("rejected", "v", "s1.r2", waited=None)
    store.close()
    answer = msgspec.convert(history.since(99), Events)
    assert (answer.events, answer.next) == ((), 9)
    assert answer.totals.events == {"created": 1, "paused": 1, "granted": 5, "rejected": 1}
    assert answer.totals.waits == (2, 0, 0, 0, 0, 1, 0, 0, 1, 1)
    assert len(answer.totals.waits) == len(WAITS) + 1
    assert answer.totals.waited == 7260.41
