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


@pytest.fixture
def host(make_host: Callable[..., gpu_host.GpuHost]) -> gpu_host.GpuHost:
    """Two devices of the same size."""
    return make_host(gpu_host.SIZE, gpu_host.SIZE)


@pytest.fixture
def process(host: gpu_host.GpuHost) -> gpu_host.CudaProcess:
    """A process that has a context on the first device of `host`."""
    process = host.process()
    process.start()
    return process
