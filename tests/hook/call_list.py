"""The hooked calls, read from the lists of which the hook is made."""

import re
from pathlib import Path

_TABLES = Path(__file__).parents[2] / "hook/src/tables"
HOOKED = dict(re.findall(r"X\((\w+),\s+(\w+),", (_TABLES / "hooked_calls.h").read_text().partition("CALLS(X)")[2]))
"""Symbol to base name, as the one list has them."""
NVML = re.findall(r"X\((nvml\w+), \(", (_TABLES / "nvml_calls.h").read_text())
