"""Makes the folder above importable, whose tables these benchmarks share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
