"""Acts on containers that hold more than their limit: records them, and ends them if the settings say so."""

import logging
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from convgpu.core.audit.overuse import OveruseRow, Spells
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.ends.survivors import Ender
from convgpu.daemon.audit.ends.terminate import Order, end_connected
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.site.strictness import says_strict

log = logging.getLogger(__name__)

OVERUSE_ACTIONS: Final = ("auto", "warn", "stop")
_STOPPED: Final = "container %s %s, and is ended: containers of its GPU did so for %g s"
_ABOVE: Final = "is above its limit"
_TOOK: Final = "took, past the hook, what others were granted or have reserved"


@dataclass(frozen=True, slots=True)
class OveruseRules:
    """What happens to containers above their limit.

    Attributes:
        action: one of OVERUSE_ACTIONS; `auto` stops them where the rules of the site are strict: there a program
            without the hook has its limit by the audit only.
        after: seconds above the limit, or with what others have, after which containers are stopped; of all containers
            of a device together.
        site: the file with the rules of the site; need not be there.
    """

    action: str
    after: float
    site: Path = Path("/nonexistent")

    def stops(self) -> bool:
        """Say whether containers are stopped now; the rules of a site change while the scheduler runs."""
        if self.action != "auto":
            return self.action == "stop"
        try:
            return says_strict(self.site.read_bytes())
        except OSError:
            return False


class OveruseEnforcer:
    """Records each overuse once, and stops containers that were above their limit, or took what others have."""

    def __init__(
        self, sessions: SessionRegistry, history: History, report: AuditReport, rules: OveruseRules, ender: Ender
    ) -> None:
        self._sessions = sessions
        self._history = history
        self._report = report
        self._rules = rules
        self._ender = ender
        self._stopped = Spells()

    def tell(self, fresh: AbstractSet[OveruseRow], over: AbstractSet[OveruseRow]) -> None:
        """Say which containers are above their limit, or have taken what others have, since now.

        Args:
            fresh: (container, device) of them.
            over: those above their limit.
        """
        for container, device in sorted(fresh):
            size = self._report.over.get(device, {}).get(container, self._report.seen_of(container, device))
            if (container, device) in over:
                log.warning("container %s holds %d bytes of %s, more than its limit", container, size, device)
                self._history.add(EventKind.OVERUSED, container, "audit", uuid=device, size=size)
            else:
                log.warning("container %s holds %d bytes of %s, and %s", container, size, device, _TOOK)

    def outlives(self, container: str) -> bool:
        """Say whether a container was ended some seconds ago, and has processes still."""
        return not self._ender.is_over(f"container {container}")

    def stop(self, expired: AbstractSet[str], over: AbstractSet[OveruseRow], index: ProcessIndex, now: float) -> None:
        """End containers.

        Args:
            expired: containers whose time is over.
            over: (container, device) above its limit; who is not among them took what others have.
            index: of processes, as of now.
            now: seconds on any clock.
        """
        fresh = self._stopped.begun(expired, now)
        for container in sorted(expired):
            if container in fresh:
                is_over = any(name == container for name, _ in over)
                log.warning(_STOPPED, container, _ABOVE if is_over else _TOOK, self._rules.after)
                reason = "overuse" if is_over else "taken"
                self._history.add(EventKind.STOPPED, container, "audit", reason=reason)
            end_connected(session.process for session in self._sessions.of(container))
            self._ender.end(f"container {container}", Order(partial(_is_of, index, container), index.container_of))


def _is_of(index: ProcessIndex, container: str, pid: int) -> bool:
    return index.without_session(pid) == container
