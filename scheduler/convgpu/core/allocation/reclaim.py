"""The ladder of reclaiming: how memory that nobody uses is taken back before an allocation has to wait."""

from collections.abc import Callable

from convgpu.core.allocation.admission import reserve_of
from convgpu.core.allocation.headroom import Headroom
from convgpu.core.state import State


class ReclaimLadder:
    """Rungs of reclaiming, the cheapest first.

    1. Idle grants: granted to a container and leased to no process. The ledger takes them back at once.
    2. Likely headroom: slots of processes that were leased more than they asked for, a few at a time, so that an
       answer does not cost more the more containers there are. Needs the answer of the shell.
    3. All headroom: every slot of every holder, armed first. Needs the answer of the shell.

    After the last rung an allocation waits. Further rungs, which take memory that is in use, belong after the third.
    """

    def __init__(self, state: State, headroom: Headroom) -> None:
        self._state = state
        self._ledger = state.ledger
        self._rungs_with_answers: tuple[Callable[[], bool], ...] = (headroom.take_likely, headroom.take_all_armed)

    def take_idle_grants(self) -> None:
        """Take rung 1: all idle grants but those that are reserved. On a drained device nobody could be given them."""
        for name in self._ledger.changed_containers:
            is_reserved = self._state.containers[name].is_admitted
            for device, account in self._ledger.accounts[name].items():
                if device not in self._state.drained:
                    reserved = reserve_of(self._state, name, account) if is_reserved else 0
                    self._ledger.take_idle(name, device, reserved)
        self._ledger.changed_containers.clear()
        self._ledger.update_deficits()

    def take_idle_of_overcommitted(self) -> None:
        """Take the idle grants of overcommitted devices, whether or not an allocation waits.

        Of what is reserved no more than the overcommit, from who was admitted last: it is not free for others, and
        `reserve_again` gives it back.
        """
        for device in self._ledger.overcommitted:
            holders = [name for name in self._ledger.holders if device in self._ledger.accounts[name]]
            admitted = [name for name in holders if self._state.containers[name].is_admitted]
            for name in holders:
                if not self._state.containers[name].is_admitted:
                    self._ledger.take_idle(name, device)
            for name in reversed(admitted):
                beyond = max(-self._ledger.free[device], 0)
                reserved = self._ledger.accounts[name][device].grant - beyond
                # What a unified container gives back the device does not hold beside its capacity any more.
                self._ledger.take_idle(name, device, 0 if beyond and name in self._ledger.unified else reserved)
                self._state.lacks_reserves = True
        self._ledger.update_deficits()

    def climb(self) -> bool:
        """Take the next rung with anything left; return whether its answer is due before anything can be decided."""
        return any(rung() for rung in self._rungs_with_answers)
