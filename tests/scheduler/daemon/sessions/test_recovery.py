"""The time after a start ends whatever happens: by grants, or by the end of a scheduler that cannot give any."""

import asyncio
import logging

import pytest

from convgpu.daemon.sessions.recovery import Recovery
from convgpu.daemon.storage.rows import PreviousSession


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
