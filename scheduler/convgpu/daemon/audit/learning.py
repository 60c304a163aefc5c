"""Tells the ledger what running containers turned out to need."""

import logging
from collections.abc import Callable

from convgpu.core import events as e
from convgpu.core.allocation.learned_limits import PeakFollower
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.registry import SessionRegistry

log = logging.getLogger(__name__)


class LimitLearner:
    """Reckons with a container's peak in place of its limit, once that has not risen for a while.

    Args:
        driver: of the machine.
        sessions: know the peaks.
        settling: seconds without a higher peak; None: nothing is learned.
        clock: monotonic seconds.
    """

    def __init__(
        self, driver: MachineDriver, sessions: SessionRegistry, settling: float | None, clock: Callable[[], float]
    ) -> None:
        self._driver, self._sessions, self._clock = driver, sessions, clock
        self._follower = None if settling is None else PeakFollower(settling)

    def learn(self) -> None:
        """Follow all containers that hold memory."""
        if self._follower is None:
            return
        names = set(self._driver.machine.holders)
        self._follower.forget(names)
        for name in sorted(names):
            peaks = {uuid: self._sessions.peak(name, uuid) for uuid in self._driver.machine.accounts(name)}
            learned = self._follower.update(name, peaks, self._clock())
            if learned is not None:
                log.info("container %s is reckoned with %s", name, dict(learned) or "its limits again")
                self._driver.dispatch(e.LimitsLearned(name, learned))
