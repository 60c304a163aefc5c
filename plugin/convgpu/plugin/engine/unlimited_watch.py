"""Tells the scheduler which containers without a limit, and programs of the host's, may use a GPU; one thread."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from convgpu.authz.host_programs import HostProgramJudge
from convgpu.authz.ports import EngineUnreachable
from convgpu.authz.unlimited import UnlimitedJudge
from convgpu.client.scheduler import Scheduler
from convgpu.logs.cause import set_cause
from convgpu.protocol.records import Unlimited
from convgpu.protocol.requests import JudgeUnlimited, ListDevices, UnlimitedVerdict

_log: Final = logging.getLogger(__name__)

_STEP: Final = 1.0  # seconds between two questions to the scheduler
_AGAIN: Final = 30.0  # seconds after which a container that was judged is judged again: rules change
_PATIENCE: Final = 0.5  # seconds that the judgement of a program may take
_MOST_HUNG: Final = 64


class UnlimitedWatch:
    """Judges what the audit found. Whoever is not judged, for whatever reason, is not ended.

    Args:
        scheduler: is asked, and told.
        judge: knows which container is permitted.
        host: knows which program of the host's is.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        judge: UnlimitedJudge,
        host: HostProgramJudge,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._judge = judge
        self._host = host
        self._clock = clock
        self._due: dict[str, float] = {}
        self._hung: dict[str, threading.Thread] = {}

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        threading.Thread(target=self._run, name="unlimited-watch", daemon=True).start()

    def _run(self) -> None:
        set_cause("unlimited-watch")
        while True:
            time.sleep(_STEP)
            try:
                self.look()
            except Exception as error:  # the scheduler or the Engine is away; the thread must go on
                _log.debug("containers without a limit are not judged: %s", error)

    def look(self) -> None:
        """Judge what the audit has found and nobody judged for a while."""
        devices = self._scheduler.ask(ListDevices()).devices
        rows = [(device.uuid, one) for device in devices for one in device.unlimited]
        seen = {one.id: (uuid, one) for uuid, one in rows if one.id and one.started}
        now = self._clock()
        self._due = {own: due for own, due in self._due.items() if own in seen}
        for uuid, one in seen.values():
            if one.kept is None or self._due.get(one.id, 0.0) <= now:
                self._judge_one(uuid, one)
                self._due[one.id] = now + _AGAIN

    def _judge_one(self, uuid: str, one: Unlimited) -> None:
        try:
            if one.pid:
                kept = self._host_kept(uuid, one)
            else:
                kept = self._judge.why_kept(one.id, _unix(one.started), is_known=one.name != one.id)
        except EngineUnreachable as error:
            _log.debug("container %s is not judged: %s", one.id, error)
            return
        if kept is not None:
            self._scheduler.ask(JudgeUnlimited((UnlimitedVerdict(one.id, one.started, kept),)))

    def _host_kept(self, uuid: str, one: Unlimited) -> str | None:
        """Return why a program of the host's is kept; None: nobody knows, or it keeps us waiting who it is.

        Who reads of a process that starts another program waits for it, as long as its user likes.
        """
        self._hung = {own: thread for own, thread in self._hung.items() if thread.is_alive()}
        if one.id in self._hung or len(self._hung) >= _MOST_HUNG:
            return None
        answers: list[str | None] = []
        thread = threading.Thread(
            target=lambda: answers.append(self._host.why_kept(one.pid, one.started, uuid)), daemon=True
        )
        thread.start()
        thread.join(_PATIENCE)
        if not answers and thread.is_alive():
            _log.warning("the host's %s keeps who looks at it waiting, so it is neither judged nor ended", one.name)
            self._hung[one.id] = thread
        return answers[0] if answers else None


def _unix(ticks: int) -> float:
    """Return Unix seconds of a time in clock ticks since boot."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
