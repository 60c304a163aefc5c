"""A card that is full to the brim by the ledger has a little less: allocations wait for room there too."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import build_porter
from daemon import Daemon, running_daemon, wait_until
from hooked_program import SUCCESS, Program

MIB = 1 << 20
CARD, POOL = 4096 * MIB, 2560 * MIB
LARGE, SMALL, COUNT = 1000 * MIB, 2 * MIB, 80  # of each: some more than what is left beside four contexts
UNSEEN = 12 * MIB  # of an outsider, too little for the audit to let the capacity follow

Join = Callable[..., Program]


@pytest.fixture
def daemon(tmp_path: Path, hook: Path) -> Iterator[Daemon]:
    build_porter()
    options = ("--oversubscribe=2.0", f"--host-memory={POOL}", f"--libraries={hook}", "--audit=100ms")
    with running_daemon(tmp_path / "d", f"simulated:{CARD >> 20}MiB", *options) as running:
        yield running


def device(daemon: Daemon) -> dict[str, int]:
    return daemon.admin.request("devices")["devices"][0]


def test_nobody_fails_for_bytes_that_only_the_ledger_has(daemon: Daemon, join: Join) -> None:
    outsider = join(daemon.directory, LD_PRELOAD="")
    folders = [daemon.container(name, memory="2g", suspend="auto", fixed="700m") for name in "ab"]
    programs = [join(folder, CONVGPU_NOTICE="never") for folder in folders]
    wait_until(lambda: device(daemon)["pool"] == POOL, "the host's memory is there", 60)
    capacity = device(daemon)["capacity"]
    assert outsider.call(f"alloc {UNSEEN}").code == SUCCESS
    for program in programs:
        assert program.call(f"alloc {LARGE}").code == SUCCESS
    codes = [program.call(f"alloc {SMALL}").code for program in programs for _ in range(COUNT)]
    assert set(codes) == {SUCCESS}
    assert sum(daemon.state(name)["devices"][0]["out"] for name in "ab") > 0
    assert daemon.events("rejected") == []
    assert capacity - 2 * UNSEEN <= device(daemon)["capacity"] < capacity
