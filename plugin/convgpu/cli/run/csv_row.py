"""One row of comma-separated values, as Docker's options have them."""

from __future__ import annotations

import io

try:
    import _csv  # what `csv` wraps: importing that takes 20 ms (decision 143); its own dialect is that of Excel too
except ImportError:  # another Python than CPython
    import csv as _csv  # type: ignore[no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def read_row(text: str) -> list[str]:
    """Return the fields of a row."""
    return next(_csv.reader([text]), [])


def write_row(fields: Sequence[str]) -> str:
    """Return fields as a row: those with commas are quoted."""
    row = io.StringIO()
    _csv.writer(row, lineterminator="").writerow(fields)
    return row.getvalue()
