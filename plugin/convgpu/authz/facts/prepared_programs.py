"""Programs that were prepared for `docker exec`, with who prepared each; bounded, and forgotten with the plugin."""

import threading
from collections import OrderedDict
from typing import Final

# Programs that are kept; of more, those are forgotten that were prepared longest ago, and have to be prepared again.
MAX_PROGRAMS: Final = 10_000


class PreparedPrograms:
    """The programs by the Engine's IDs; several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def add(self, program: str, user: str, mode: str) -> None:
        """Note that a user prepared a program while rules of this mode were in force."""
        with self._lock:
            self._by[program] = (user, mode)
            while len(self._by) > MAX_PROGRAMS:
                self._by.popitem(last=False)

    def is_of(self, program: str, user: str, mode: str) -> bool:
        """Tell whether the user prepared a program under rules of the mode."""
        with self._lock:
            return self._by.get(program) == (user, mode)
