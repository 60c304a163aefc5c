"""docs/reference.md is what the code says, and the code says all."""

import re
import subprocess
import sys
from pathlib import Path

from convgpu.protocol.event_kinds import EventKind

ROOT = Path(__file__).parents[1]


def test_the_reference_is_fresh():
    written = subprocess.run(
        [sys.executable, "scripts/reference.py"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert (ROOT / "docs/reference.md").read_text() == written, "docs/reference.md is stale: run scripts/reference"


def test_each_kind_of_event_is_of_the_enumeration_and_has_a_meaning():
    sources = [path.read_text() for path in (ROOT / "scheduler/convgpu/daemon").rglob("*.py")]
    assert [text for text in sources if re.search(r'history\.add\(\s*"', text)] == []
    assert all(kind.description for kind in EventKind)
