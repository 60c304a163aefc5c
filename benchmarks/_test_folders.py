"""Makes the folders of the tests importable whose daemon, processes, browser and Engine are measured here."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / folder) for folder in ("fakes", "front", "hook", "lifecycle", "gpu/moving")]
