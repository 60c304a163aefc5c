"""Acts on containers that hold more than their limit: records them, and ends them if the settings say so."""

import asyncio
import logging
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from convgpu.core.attribution import OveruseTimer
from convgpu.daemon.audit.container_resolver import ProcessIndex
from convgpu.daemon.audit.report import AuditReport
from convgpu.daemon.audit.terminate import end_all_processes, end_connected
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.history import History
from convgpu.protocol.event_kinds import EventKind

log = logging.getLogger(__name__)

OVERUSE_ACTIONS: Final = ("warn", "stop")


@dataclass(frozen=True, slots=True)
class OveruseRules:
    """`action`: one of OVERUSE_ACTIONS; `after`: seconds above the limit after which a container is stopped."""

    action: str
    after: float


class OveruseEnforcer:
    """Records each overuse once, and stops a container that stays above its limit."""

    def __init__(self, sessions: SessionRegistry, history: History, report: AuditReport, rules: OveruseRules) -> None:
        self._sessions = sessions
        self._history = history
        self._report = report
        self._rules = rules
        self._timer = OveruseTimer(rules.after)
        self._stopped: set[str] = set()

    def enforce(self, over: set[tuple[str, str]], index: ProcessIndex, forgers: AbstractSet[str]) -> None:
        """Take the (container, device) pairs that are above their limit now; of `forgers` none stays there a while."""
        loop = asyncio.get_running_loop()
        fresh, expired = self._timer.update(over, loop.time())
        expired |= {container for container, _ in over if container in forgers}
        for container, device in sorted(fresh):
            size = self._report.seen_of(container, device)
            log.warning("container %s holds %d bytes of %s, more than its limit", container, size, device)
            self._history.add(EventKind.OVERUSED, container, "audit", uuid=device, size=size)
        if self._rules.action != "stop":
            return
        for container in sorted(expired):
            if container not in self._stopped:
                log.warning("container %s stayed above its limit for %g s and is ended", container, self._rules.after)
                self._history.add(EventKind.STOPPED, container, "audit", reason="overuse")
            end_connected(session.process for session in self._sessions.of(container))
            loop.run_in_executor(None, end_all_processes, index, container)
        self._stopped = expired
