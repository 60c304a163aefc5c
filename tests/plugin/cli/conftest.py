"""Fixtures for all tests of the command line."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def unconnected_sockets() -> Iterator[None]:
    """Collect the sockets that requests-unixsocket could not connect and leaves to the garbage collector.

    Such a test also ignores `unclosed <socket:ResourceWarning`.
    """
    yield
    gc.collect()
