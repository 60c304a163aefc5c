import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import build_driver, build_porter
from gpu_host import GIB, GpuHost
from porter_host import MIB, Owner, Porter

from convgpu.protocol.residency.porter import Pooled


@pytest.fixture(scope="session", params=["", "address,undefined", "thread"], ids=["plain", "address", "thread"])
def program(request: pytest.FixtureRequest) -> Path:
    """The porter, as it is delivered and under sanitizers."""
    build_driver()
    return build_porter(request.param, request.param.partition(",")[0])


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GpuHost]:
    with GpuHost(tmp_path, [16 * GIB, 16 * GIB]) as host:
        yield host


@pytest.fixture
def porter(program: Path, host: GpuHost, tmp_path: Path) -> Iterator[Porter]:
    """A porter with a pool of 256 MiB in memory, as soon as the first process is there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        porter = Porter(program, host, Path(folder) / "pool", tmp_path / "porter.log")
        porter.resize(256 * MIB)
        yield porter
        porter.close()
    assert "Sanitizer" not in porter.log.read_text(), porter.log.read_text()


@pytest.fixture
def owner(host: GpuHost) -> Owner:
    return Owner(host)


@pytest.fixture
def grown(porter: Porter) -> Callable[[], None]:
    """Wait until the pool has its size; the first carrier makes the context that it is registered in."""
    return lambda: porter.expect(Pooled, size=256 * MIB)
