"""Writes what containers hold into the database, for people who read it; a part of the containers at a time."""

from typing import Final

from convgpu.core.machine import Machine
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.storage.rows import Holding
from convgpu.daemon.storage.volumes import VolumeTable

# Containers whose figures are written after one audit.
_BATCH: Final = 100


class HoldingsWriter:
    """Writes the figures that changed."""

    def __init__(self, machine: Machine, sessions: SessionRegistry, volumes: VolumeTable) -> None:
        self._machine = machine
        self._sessions = sessions
        self._volumes = volumes
        self._written: dict[tuple[str, str], Holding] = {}
        self._due: list[str] = []

    def write(self) -> None:
        """Write the figures of some containers; the others follow after the next audits."""
        if not self._due:
            self._sessions.forget_peaks()
            self._due = list({*self._machine.holders, *(name for name, _ in self._written)})
        batch, self._due = self._due[:_BATCH], self._due[_BATCH:]
        for name in batch:
            residence = self._machine.residence(name)
            for device, account in self._machine.accounts(name).items():
                before = self._written.pop((name, device), Holding())
                used = self._sessions.used(name, device) + account.charged if account.held else 0
                self._sessions.note_peak(name, device)
                out, fixed = (residence.out[device], residence.fixed[device]) if residence else (0, 0)
                holding = Holding(account.grant, used, out, fixed)
                if holding != before:
                    self._volumes.set_holding(name, device, holding)
                if holding != Holding():
                    self._written[name, device] = holding
