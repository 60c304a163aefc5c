"""The time after a start ends whatever happens: by grants, or by the end of a scheduler that cannot give any."""

import asyncio
import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest

from convgpu.daemon.hook_api.handshake import Handshake
from convgpu.daemon.sessions.recovery import Recovery, living_sessions
from convgpu.daemon.storage.rows import PreviousSession
from convgpu.daemon.system import procfs

ENDED = 1 << 22  # above any pid of Linux's


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was told of any process yet, and the kernel is kept from telling, or the machine is slow."""
    monkeypatch.setattr(procfs, "_starts", {})
    monkeypatch.setattr(procfs._looks, "ask", lambda _pid, _look: None)


@pytest.mark.usefixtures("silent")
def test_who_lives_is_waited_for_though_nobody_tells_when_it_started() -> None:
    """It was forgotten: what it held was nobody's, and what was reserved for it went to others."""
    forgotten: list[PreviousSession] = []
    lives, ended = PreviousSession(os.getpid(), 5, "a", "x"), PreviousSession(ENDED, 5, "a", "x")
    table: Any = SimpleNamespace(all=lambda: [lives, ended], drop=forgotten.append)
    assert (living_sessions(table), forgotten) == ([lives], [ended])


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("pid", "incomplete"), [(os.getpid(), [()]), (0, [()]), (ENDED, [])], ids=["lives", "unseen", "ended"]
)
def test_of_whom_nobody_tells_the_next_scheduler_waits_without_knowing_for_whom(
    pid: int, incomplete: list[tuple[()]]
) -> None:
    marked: list[tuple[()]] = []
    unused: Any = None
    table: Any = SimpleNamespace(mark_incomplete=lambda *none: marked.append(none))
    handshake = Handshake(unused, unused, unused, unused, unused, unused, table)
    handshake._save(PreviousSession(pid, 0, "a", "x"))
    assert marked == incomplete


async def recover(*, settled: bool | Exception, end: Exception | None = None) -> list[str]:
    """Return what a recovery without formers called."""
    called: list[str] = []
    over = asyncio.Event()

    async def is_settled() -> bool:
        if isinstance(settled, Exception):
            raise settled
        return settled

    async def on_end(missing: list[PreviousSession]) -> None:
        assert missing == []
        if end is not None:
            raise end
        called.append("ended")
        over.set()

    def on_failure() -> None:
        called.append("broken")
        over.set()

    recovery = Recovery(
        asyncio.get_running_loop(),
        [],
        complete=True,
        has_reconnected=lambda _: False,
        is_settled=is_settled,
        on_end=on_end,
        on_failure=on_failure,
    )
    await asyncio.wait_for(over.wait(), 10)
    recovery.close()
    return called


def test_a_recovery_ends_once() -> None:
    assert asyncio.run(recover(settled=True)) == ["ended"]


@pytest.mark.parametrize("where", [{"settled": OSError("no NVML")}, {"settled": True, "end": KeyError("GPU-0")}])
def test_one_that_cannot_end_is_told(where: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        assert asyncio.run(recover(**where)) == ["broken"]
    assert "nothing can be granted" in caplog.text
