from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import gpu_host
import pytest
from built import build_driver


@pytest.fixture(scope="session", autouse=True)
def simulated_driver() -> None:
    build_driver()


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., gpu_host.GpuHost]]:
    """Make a host with devices of the given sizes; its processes end with the test."""
    with ExitStack() as stack:
        yield lambda *sizes, **settings: stack.enter_context(gpu_host.GpuHost(tmp_path, list(sizes), **settings))
