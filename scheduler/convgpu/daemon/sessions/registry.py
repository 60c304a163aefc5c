"""The registry of sessions: connected processes, their usage, and their pending allocations."""

from convgpu.core.machine import Machine
from convgpu.core.memory.account import AccountView
from convgpu.daemon.sessions.open_requests import OpenRequests
from convgpu.daemon.sessions.session import PendingAllocation, Session


class SessionRegistry:
    """All sessions by their number, and all pending allocations by the number of their request.

    Args:
        machine: its ledger knows the leases; only read here.
        requests: of all sessions that are open.
    """

    def __init__(self, machine: Machine, requests: OpenRequests) -> None:
        self.requests = requests
        self.by_number: dict[int, Session] = {}
        self.pending: dict[int, PendingAllocation] = {}
        self._machine = machine
        self._by_container: dict[str, dict[int, Session]] = {}
        self._by_process: dict[tuple[str, int, int], Session] = {}
        self._last_removed: Session | None = None
        self._peaks: dict[tuple[str, str], int] = {}

    # -- sessions --------------------------------------------------------------------------------------------

    def add(self, session: Session) -> None:
        """Add a session with the limits of its container; a process that was alone learns that it is not any more."""
        self.by_number[session.number] = session
        self._by_process[_process_of(session)] = session
        others = self._by_container.setdefault(session.container, {})
        others[session.number] = session
        self._publish(session.container, list(others.values()) if len(others) == 2 else [session])

    def remove(self, session: Session) -> None:
        """Remove a session and its pending allocations."""
        del self.by_number[session.number]
        others = self._by_container[session.container]
        del others[session.number]
        if self._by_process.get(_process_of(session)) is session:
            del self._by_process[_process_of(session)]
        if not others:
            del self._by_container[session.container]
        self.requests.forget(session)
        self._last_removed = session
        for request in [number for number, pending in self.pending.items() if pending.session is session]:
            del self.pending[request]

    def session_of_record(self, number: int) -> Session | None:
        """Return a session for its history entries; the session that was removed last is still found."""
        last = self._last_removed
        return self.by_number.get(number, last if last is not None and last.number == number else None)

    def find(self, container: str, pid: int, started: int) -> Session | None:
        """Return the session of a process by its pid, None if it has none or its pid is not visible here."""
        return self._by_process.get((container, pid, started)) if pid else None

    def of(self, container: str) -> list[Session]:
        """Return the container's sessions, oldest first."""
        return list(self._by_container.get(container, {}).values())

    def by_container(self) -> dict[str, list[Session]]:
        """Return all sessions, oldest first, by their container."""
        return {container: list(sessions.values()) for container, sessions in self._by_container.items()}

    def publish_limits(self, container: str) -> None:
        """Write the limits of a container into the pages of its processes, and whether it has only one process.

        Must come before another process gets WELCOME: a process that is alone answers queries about memory itself.
        """
        self._publish(container, self.of(container))

    def publish_end(self, container: str) -> None:
        """Publish to the process that is alone now, if there is one, that it is; nothing else changed for the rest."""
        sessions = self.of(container)
        if len(sessions) == 1:
            self._publish(container, sessions)

    def _publish(self, container: str, sessions: list[Session]) -> None:
        accounts, alone = self._machine.accounts(container), len(self._by_container.get(container, ())) == 1
        for session in sessions:
            for row, uuid in enumerate(session.rows):
                if uuid not in accounts:  # its container was placed anew
                    continue
                session.page.publish_limit(row, accounts[uuid].limit, alone=alone)

    # -- usage -----------------------------------------------------------------------------------------------

    def used(self, container: str, device: str) -> int:
        """Return the usage of a container on a device: leases less headrooms, in bytes."""
        account = self._machine.account(container, device)
        return 0 if account is None else self.used_of(account, device)

    def counted(self, container: str, device: str) -> int:
        """Return what counts in the limit of a container on a device: its usage, and what it is charged with beside."""
        account = self._machine.account(container, device)
        return 0 if account is None else self.used_of(account, device) + account.charged

    def used_of(self, account: AccountView, device: str) -> int:
        """Return the same for an account on the device that was just read."""
        leases = account.leases.items()
        return sum([self.by_number[number].usage(device, lease) for number, lease in leases if lease])

    def note_peak(self, container: str, device: str) -> None:
        """Note the usage of a container on a device, if it never had more: at intervals, and when a process ends."""
        used = self.used(container, device)
        if used > self._peaks.get((container, device), 0):
            self._peaks[container, device] = used

    def peak(self, container: str, device: str) -> int:
        """Return the highest usage that was noted, in bytes."""
        return max(self._peaks.get((container, device), 0), self.used(container, device))

    def forget_peaks(self) -> None:
        """Forget the peaks of containers that are gone."""
        gone = [key for key in self._peaks if self._machine.account(*key) is None]
        for key in gone:
            del self._peaks[key]

    def used_on(self, device: str) -> int:
        """Return the usage of all containers on a device, in bytes."""
        return sum(self.used(container, device) for container in self._machine.holders)

    def used_by(self, session: Session, device: str) -> int:
        """Return the usage of one process on a device, in bytes."""
        return session.usage(device, self.lease(session, device))

    def forgers(self, device: str) -> set[str]:
        """Return the containers of processes whose headroom is above their lease: no hook does that, so it was written.

        What a hook puts into the headroom it took from there, or was granted, and that is in the lease before.
        """
        rows = ((one, one.rows.index(device)) for one in self.by_number.values() if device in one.rows)
        return {session.container for session, row in rows if session.page.read(row) > self.lease(session, device)}

    def lease(self, session: Session, device: str) -> int:
        """Return the lease of a process on a device, in bytes."""
        return self._machine.lease(session.number, device)


def _process_of(session: Session) -> tuple[str, int, int]:
    return session.container, session.pid, session.started
