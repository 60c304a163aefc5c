"""Makes threads, pools, loops and started programs late at random: on PYTHONPATH, of all Python programs of a run.

CONVGPU_LATE names the most seconds. What a slow machine shows once in many runs, as races of threads and times that are
too short, is found in minutes (`make late`).
"""

import os
import random
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread as pools
from functools import wraps
from typing import Any, Final

_MOST: Final = float(os.environ.get("CONVGPU_LATE", "0"))
_random: Final = random.Random()  # noqa: S311 - it hides nothing


def _late(work: Callable[..., Any], before: float, after: float = 0.0) -> Callable[..., Any]:
    """Return some work that begins late, and comes back late, with these chances."""

    @wraps(work)
    def late(*arguments: Any, **named: Any) -> Any:
        _sleep(before)
        result = work(*arguments, **named)
        _sleep(after)
        return result

    return late


def _sleep(chance: float) -> None:
    if _random.random() < chance:
        time.sleep(_random.random() * _MOST)


if _MOST:
    os.register_at_fork(after_in_child=_random.seed)
    threading.Thread.run = _late(threading.Thread.run, 0.3, 0.1)  # type: ignore[method-assign]
    pools._WorkItem.run = _late(pools._WorkItem.run, 0.3)  # type: ignore[method-assign]
    selectors.EpollSelector.select = _late(selectors.EpollSelector.select, 0.02)  # type: ignore[method-assign]
    subprocess.Popen.__init__ = _late(subprocess.Popen.__init__, 0.0, 0.3)  # type: ignore[method-assign]
