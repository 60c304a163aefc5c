"""The hooked calls, read from the lists of which the hook is made."""

import re
import subprocess
from pathlib import Path

_TABLES = Path(__file__).parents[2] / "hook/src/tables"


def _read(name: str) -> dict[str, str]:
    return dict(re.findall(r"X\((\w+),\s+(\w+),", (_TABLES / name).read_text().partition("CALLS(X)")[2]))


GATED = _read("gated_calls.h")
PASSED = _read("stream_calls.h")
HOOKED = _read("hooked_calls.h") | GATED | PASSED
"""Symbol to base name, as the lists have them: the submissions, others with a stream, and with them all other calls."""
NVML = re.findall(r"X\((nvml\w+), \(", (_TABLES / "nvml_calls.h").read_text())


def driven(driver: Path) -> set[str]:
    """Symbols that the simulated driver has: not all that cuda.h has."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", driver / "libcuda.so.1"], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1] for line in listing.splitlines()}
