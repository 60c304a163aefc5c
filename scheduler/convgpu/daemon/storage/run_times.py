"""How long containers of each image have run, by those that have ended."""

import json
from collections import OrderedDict, deque
from statistics import median
from typing import Final

from convgpu.daemon.storage.rows import Volume
from convgpu.daemon.storage.transactions import Database

_RUNS: Final = 16  # newest runs of an image
_LEAST_RUNS: Final = 3  # that say anything
_IMAGES: Final = 256
_READ: Final = "SELECT details FROM history WHERE kind = 'ended' ORDER BY sequence DESC LIMIT 2048"


class RunTimes:
    """The newest runs of the images that ran last.

    Args:
        database: whose history has the runs of earlier schedulers.
    """

    def __init__(self, database: Database) -> None:
        self._runs: OrderedDict[str, deque[float]] = OrderedDict()
        for (details,) in reversed(database.rows(_READ)):
            self.add(json.loads(str(details)))

    def add(self, event: dict[str, object]) -> None:
        """Add the run that an event `ended` tells of, if it does."""
        image, ran = event.get("image"), event.get("ran")
        if not isinstance(image, str) or not isinstance(ran, int | float):
            return
        self._runs.setdefault(image, deque(maxlen=_RUNS)).append(float(ran))
        self._runs.move_to_end(image)
        if len(self._runs) > _IMAGES:
            self._runs.popitem(last=False)

    def usual(self, image: str) -> float | None:
        """Return the median of the runs of an image in seconds; None if there are too few."""
        runs = self._runs.get(image, ())
        return median(runs) if len(runs) >= _LEAST_RUNS else None


def describe_run(volume: Volume, ran: float) -> dict[str, object]:
    """Return the fields of an event `ended`: how many seconds a container ran, and of which image it was."""
    return {"ran": round(ran, 3), "image": volume.engine.image if volume.engine else None}
