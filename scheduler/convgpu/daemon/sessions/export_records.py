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
from convgpu.daemon.storage.settings import SettingTable

log = logging.getLogger(__name__)

_NAME: Final = "exported"
# Of processes; those with least are left out, where there are more.
_MOST: Final = 1024


_Size = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]  # bytes


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process exported, in bytes by device.

    Attributes:
        pid: 0: it has ended, and left that.
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


class ExportRecords:
    """Writes what is exported and left after each audit, and takes up what an earlier scheduler wrote."""

    def __init__(
        self, driver: MachineDriver, outliving: OutlivingMemory, sessions: SessionRegistry, settings: SettingTable
    ) -> None:
        self._driver = driver
        self._outliving = outliving
        self._sessions = sessions
        self._settings = settings
        self._written = settings.get(_NAME) or "[]"
        self._is_restored = False

    def restore(self) -> None:
        """Take up what an earlier scheduler wrote. Its processes have connected again, or are adopted."""
        try:
            records = msgspec.json.decode(self._written, type=list[Record])
        except msgspec.MsgspecError as error:
            log.error("what processes of an earlier run had exported is not known: %s", error)
            records = []
        for one in records:
            self._take_up(one.container, one.pid, one.started, self._present(one.charged), self._present(one.removed))
        self._is_restored = True

    def _present(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {device: size for device, size in sizes.items() if device in self._driver.machine.devices}

    def _take_up(
        self, container: str, pid: int, started: int, charged: Mapping[str, int], removed: Mapping[str, int]
    ) -> None:
        session = self._sessions.find(container, pid, started)
        # Who holds nothing has executed another program.
        if session is not None and any(self._used(session).values()):
            self._outliving.expect(session, charged)
        elif charged or removed:
            self._outliving.restore(container, charged, removed)

    def write(self) -> None:
        """Write what has changed, once the earlier records are taken up."""
        if not self._is_restored:
            return
        records = sorted(self._records(), key=lambda one: one.size, reverse=True)[:_MOST]
        text = msgspec.json.encode(records).decode()
        if text != self._written:
            self._settings.note(_NAME, text)
            self._written = text

    def _records(self) -> list[Record]:
        """Return a record for each process; none has more than it uses, whatever it tells."""
        found = [Record(name, charged=charged, removed=removed) for name, charged, removed in self._outliving.left()]
        for number, told in self._outliving.told().items():
            session = self._sessions.by_number.get(number)
            if session is not None and told:
                sizes = told & Counter(self._used(session))
                found.append(Record(session.container, session.pid, session.started, sizes))
        return found

    def _used(self, session: Session) -> dict[str, int]:
        return {device: self._sessions.used_by(session, device) for device in session.rows}
