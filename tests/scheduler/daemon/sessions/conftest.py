"""A host on which the coroutine of a test runs."""

import asyncio
from collections.abc import Callable

import pytest
from exporting_host import Check, Host


@pytest.fixture
def on_host() -> Callable[[Check], None]:
    def run(check: Check) -> None:
        async def work() -> None:
            try:
                await check(Host())
            finally:
                Host.close_all()

        asyncio.run(work())

    return run
