"""Traces of others, which the repository does not hold."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
TRACES = Path(os.environ.get("CONVGPU_TRACES", ROOT.parent / "shared/traces"))


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of the traces; docs/simulation.md says where they come from."""
    if not TRACES.is_dir():
        pytest.skip("no folder of traces; CONVGPU_TRACES names one (docs/simulation.md)")
    return TRACES
