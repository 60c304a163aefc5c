"""What processes exported and left, kept for the next scheduler (docs/decisions/0214).

The kernel's word for what is open goes with this scheduler: it is in copies of instances of the processes. So the next
one knows sizes only, and takes them as open.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.sessions.session import Session
from convgpu.daemon.storage.settings import EXPORTED, SettingTable

log = logging.getLogger(__name__)

# Of living processes, and of containers; those with least are left out, where there are more.
_MOST: Final = 1024


_Size = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]  # bytes


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process exported, or all that have ended of a container, in bytes by device.

    Attributes:
        pid: 0: of all that have ended.
        started: when the process did, in clock ticks since boot.
        charged: what it exported; once it has ended, what its container is charged with.
        removed: what nobody is charged with, because the volume was removed.
    """

    container: str
    pid: int = 0
    started: int = 0
    charged: Mapping[str, _Size] = {}
    removed: Mapping[str, _Size] = {}

    @property
    def size(self) -> int:
        """Bytes of all devices."""
        return sum(self.charged.values()) + sum(self.removed.values())


_RECORD: Final = msgspec.json.Decoder(Record)


class ExportRecords:
    """Writes what is exported and left after each audit, and takes up what an earlier scheduler wrote.

    Args:
        audited: whether there are audits. Without them nobody finds out what is gone, so nothing is taken up.
    """

    def __init__(
        self,
        driver: MachineDriver,
        outliving: OutlivingMemory,
        sessions: SessionRegistry,
        settings: SettingTable,
        *,
        audited: bool,
    ) -> None:
        self._driver = driver
        self._outliving = outliving
        self._sessions = sessions
        self._settings = settings
        self._written = settings.get(EXPORTED) or "[]"
        self._left: list[Record] = []
        self._is_restored = False
        if audited:
            self._remember()
        elif self._written != "[]":
            settings.forget(EXPORTED)

    def _remember(self) -> None:
        """Read what an earlier scheduler wrote; a row that cannot be read costs no other one."""
        try:
            rows = msgspec.json.decode(self._written, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as error:
            log.error("what processes of an earlier run had exported is not known: %s", error)
            return
        for row in rows:
            try:
                one = _RECORD.decode(row)
            except (msgspec.MsgspecError, RecursionError) as error:
                log.error("what a process of an earlier run had exported is not known: %s", error)
                continue
            if one.pid:
                self._outliving.remember((one.container, one.pid, one.started), self._present(one.charged))
            else:
                self._left.append(one)

    def _present(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {device: size for device, size in sizes.items() if device in self._driver.machine.devices}

    def restore(self) -> None:
        """Charge with what was left, also by processes that have not connected again."""
        self._outliving.end_recovery()
        for one in self._left:
            self._outliving.restore(one.container, self._present(one.charged), self._present(one.removed))
        self._left.clear()
        self._is_restored = True

    def write(self) -> None:
        """Write what has changed, once the earlier records are taken up."""
        if not self._is_restored:
            return
        records = sorted(self._records(), key=lambda one: one.size, reverse=True)[:_MOST]
        text = msgspec.json.encode(records).decode()
        if text != self._written:
            self._settings.note(EXPORTED, text)
            self._written = text

    def _records(self) -> list[Record]:
        """Return a record for each living process, and for each container; none has more than it uses."""
        left = self._outliving.left()
        found = [Record(name, charged=charged, removed=removed) for name, (charged, removed) in left.items()]
        for number, told in self._outliving.told().items():
            session = self._sessions.by_number.get(number)
            if session is not None and session.pid and told:  # a pid that is not seen here tells nobody apart
                sizes = told & Counter(self._used(session))
                found.append(Record(session.container, session.pid, session.started, sizes))
        return found

    def _used(self, session: Session) -> dict[str, int]:
        return {device: self._sessions.used_by(session, device) for device in session.rows}
