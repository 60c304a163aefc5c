"""How many descriptors this process may have, and whether all but a reserve are in use."""

import os
import resource


class Descriptors:
    """The descriptors of this process, of which an eighth is kept for what it has begun already.

    Attributes:
        limit: how many there can be.
    """

    def __init__(self) -> None:
        self.limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._bound = self.limit - self.limit // 8

    def are_scarce(self) -> bool:
        """Say whether only the reserve is left. The kernel gives the lowest number, so all below it are in use."""
        try:
            number = os.eventfd(0)
        except OSError:
            return True
        os.close(number)
        return number >= self._bound
