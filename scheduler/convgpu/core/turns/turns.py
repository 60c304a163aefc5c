"""Who has the turn to be on a card. What waits holds nothing that another could use, and all run while all fit."""

from math import inf
from typing import Final

from convgpu.core.allocation.headroom import Headroom
from convgpu.core.allocation.wait_reasons import Wait
from convgpu.core.residency.state import Phase, Residence, Sizes, Turn
from convgpu.core.state import State
from convgpu.core.turns.backfill import TurnBackfill
from convgpu.core.turns.invariants import check_residency
from convgpu.core.turns.moves import DEADLINE, STEP_AFTER, Moves
from convgpu.core.turns.reasons import InTheWay, explain_deferred
from convgpu.core.turns.room import Room
from convgpu.core.turns.time_slices import TimeSlices
from convgpu.core.turns.waiting import WaitingTurns

WATCH_FOR: Final = 10.0  # seconds for which a container is watched at least
_MOST_ROUNDS: Final = 16  # what moves may make room for another turn at once
_FIRST_LOOK: Final = 8  # overdue turns after which it is asked first whether anybody else fits still

Devices = dict[str, None]


class Turns:
    """Decides after each event who gets a turn and whose memory leaves for it.

    A container waits for its turn while an allocation that the ledger has leased has no room on the card, or while it
    is stopped and wants to run. It gets the turn when all that it needs, on all its devices, fits beside those that
    have theirs: what others hold that have none is moved out of the way. Overdue ones come first, by age, and nobody
    passes them on their devices who could delay them; then priority decides, then the memory policy.

    Args:
        state: of the machine.
        room: of the cards.
        moves: carries the decisions out.
        headroom: of all processes; it is taken back before anybody is stopped.
        switch_cost: the share of the time that time slices may cost.

    Attributes:
        in_the_way: the containers whose ends would make room for a turn.
    """

    def __init__(self, state: State, room: Room, moves: Moves, headroom: Headroom, switch_cost: float) -> None:
        self._state = state
        self._residency = state.residency
        self._room = room
        self._moves = moves
        self._headroom = headroom
        self._waiting = WaitingTurns(state, room)
        self._backfill = TurnBackfill(state, room, self._waiting)
        self.in_the_way = InTheWay(state, room)
        self._slices = TimeSlices(state, room, switch_cost)
        self._seen: dict[str, tuple[int, int]] = {}  # the figures of each device when they were compared last
        self._had: dict[str, tuple[bool, int]] = {}  # whether it was drained then, and the bytes of its card
        self._looked_at = -inf  # when it was asked last who has become overdue
        self._touched: dict[str, None] = {}  # the devices on which somebody may get a turn now
        self._next: dict[str, Turn | None] = {}  # by device, as far as somebody asked since the last decision

    def decide(self) -> bool:
        """Give turns and carry moves on; return whether headroom has to be taken before anything can be decided."""
        residency = self._residency
        self._next.clear()
        self.in_the_way.forget()
        if not residency.is_active:
            residency.changed.clear()
            self._state.ledger.lease_changes.clear()
            self._backfill.forget()
            return False
        self._note_time()
        self._update()
        if self._state.recovering:
            return False
        self._end_stops()
        self._revoke_beyond_room()
        residency.is_tight = any(size > self._room.free(device) for device, size in self._waiting.need.items() if size)
        self._headroom.disarm_all()
        if (residency.is_tight and self._headroom.take_all_armed()) or self._headroom.take_stopped():
            return True
        self._touch_changed()
        for _ in range(_MOST_ROUNDS):
            self._admit()
            self._advance()
            self._touch_changed()
            if not self._touched:
                break
        residency.is_tight &= bool(residency.turns)
        self._watch()
        return False

    def _note_time(self) -> None:
        """Consider containers anew that were busy or idle for long enough."""
        residency, now = self._residency, self._state.now
        due = self._busy_no_more()
        for name in [name for name in residency.refused if residency.containers[name].restore_at <= now]:
            del residency.refused[name]
        due += [name for name in residency.resting if residency.containers[name].leaves_at <= now]
        residency.changed |= dict.fromkeys(due)

    def _busy_no_more(self) -> list[str]:
        """Return the containers that may be told to stop again, and were not considered since."""
        containers, now = self._residency.containers, self._state.now
        return [name for name in self._residency.busy if containers[name].busy_until <= now]

    def _watch(self) -> None:
        """Have those on whose cards memory is wanted say when they are idle, and no more some time after that."""
        residency, watched = self._residency, self._residency.watched
        ranked = self._waiting.ranked
        wanted = [device for device in residency.devices if ranked[device] or self._room.free(device) < 0]
        for name in [name for device in wanted for name in self._room.running[device]]:
            if name not in watched:
                watched[name] = self._state.now
                self._moves.watch(name, on=True)
        if not wanted and watched:
            for name in [name for name, since in watched.items() if self._state.now - since >= WATCH_FOR]:
                del watched[name]
                self._moves.watch(name, on=False)

    def explain(self) -> dict[int, Wait]:
        """Return why allocations wait that are granted and have no room on the card, by the number of the request."""
        return explain_deferred(self._state, self.in_the_way)

    def due(self, name: str) -> float | None:
        """Return when a container gets its turn at the latest, because quanta end; on the clock of the events.

        None: it does not wait, others come before it on one of its devices, or time alone brings it no turn.
        """
        turn = self._residency.turns.get(name)
        if turn is None or turn.is_admitted or any(device in self._state.drained for device in turn.need):
            return None
        for device in turn.claims:
            if device not in self._next:
                self._next[device] = self._claimant(device)
            if self._next[device] is not turn:
                return None
        return self._slices.due(turn, self._waiting.could_be_free())

    def check(self) -> None:
        """Check everything that is computed.

        Raises:
            InvariantBrokenError: it is wrong, or somebody waits for a turn that could be given.
        """
        self._residency.changed |= dict.fromkeys(self._busy_no_more())  # which wakes nobody where nobody waits
        self._update()
        check_residency(self._state, self._room, self._waiting, self._backfill)
        self._slices.check()

    def _update(self) -> None:
        """Bring everything that is computed up to date with the containers that changed."""
        changed = self._residency.changed | self._state.ledger.lease_changes
        self._residency.changed.clear()
        self._state.ledger.lease_changes.clear()
        for name in changed:
            self._room.refresh_container(name)
            self._waiting.update(name)
            self._backfill.note(name)
            if len(self._touched) < len(self._residency.devices):
                # Who has left a lost device has no account, and claims nothing: it may go on wherever that is.
                accounts = self._state.ledger.accounts.get(name)
                self._touched |= dict.fromkeys(accounts or self._residency.devices)

    def _touch_changed(self) -> None:
        if self._state.now >= self._slices.next_end:
            self._touched = dict.fromkeys(self._residency.devices)
        if self._state.now > self._looked_at:
            self._touched |= dict.fromkeys(self._waiting.newly_overdue_on(self._looked_at))
            self._looked_at = self._state.now
        for device in self._residency.devices:
            figures = (self._room.could_be_free(device), self._waiting.pledged[device])
            if figures != self._seen.get(device):
                self._touched[device] = None
                self._seen[device] = figures
            has = (device in self._state.drained, self._room.card(device))
            if has != self._had.get(device):  # whom it decides about may delay others elsewhere now, or not any more
                connected = self._state.ledger.groups.connected(device)
                self._touched |= dict.fromkeys(other for other in self._residency.devices if other in connected)
                self._had[device] = has

    # -- stops that take too long --------------------------------------------------------------------------

    def _end_stops(self) -> None:
        """Give up stops that were not answered in time; let submissions pass where processes wait for each other."""
        for name in list(self._residency.stopping):
            residence = self._residency.containers[name]
            self._moves.finish_stop(name)  # whom it waited for may have ended
            if residence.phase is not Phase.STOPPING:
                continue
            if self._state.now >= residence.asked_at + 2 * DEADLINE:
                self._moves.give_up(name)
            elif self._may_step(residence) and self._state.now >= residence.stepped_at + STEP_AFTER:
                self._moves.let_step(name)
        self._update()

    @staticmethod
    def _may_step(residence: Residence) -> bool:
        return any(memory.is_stopped and memory.waiting for _, memory in residence.able)

    # -- who gets the turn ---------------------------------------------------------------------------------

    def _revoke_beyond_room(self) -> None:
        """Take turns back that cannot be carried out: a container did not stop, or facts took memory."""
        while self._waiting.admitted:
            room = self._waiting.could_be_free()
            admitted = reversed(list(self._waiting.admitted.values()))
            turn = next((turn for turn in admitted if any(room[device] < 0 for device in turn.need)), None)
            if turn is None:
                return
            self._residency.revoke(turn.container)
            self._update()

    def _admit(self) -> None:
        """Give turns, as long as there is room on a device where anything changed; at last others lose theirs for it.

        While turns are given, room only shrinks: who does not fit, or could delay an overdue one, has to wait until
        others lose theirs.
        """
        devices = self._touched
        room = {device: could_be_free - pledged for device, (could_be_free, pledged) in self._seen.items()}
        while devices:
            self._admit_fitting(devices, room)
            if devices := self._preempt(room):
                room = self._waiting.could_be_free()
        self._touched.clear()

    def _admit_fitting(self, devices: Devices, room: Sizes) -> None:
        """Give turns to those that fit beside each other: overdue ones by age, then by priority and memory policy."""
        left = dict(room)
        self._admit_overdue(devices, room, left)
        fitting = self._waiting.fitting(devices, left)
        while fitting:
            self._give(self._first(fitting, room), room, left)
            fitting = [turn for turn in fitting if not turn.is_admitted and self._waiting.fits(turn, left)]

    def _admit_overdue(self, devices: Devices, room: Sizes, left: Sizes) -> None:
        """Give turns to overdue containers that fit, by age; `left` becomes what delays none of those that wait on.

        Only where anybody fits, on one of these devices at least, and until nobody does any more. Who still fits is
        asked less and less often, as there may be many.
        """
        waiting = self._waiting
        wanted = {device for device, size in room.items() if waiting.least_claim(device) <= size}
        if wanted.isdisjoint(devices):
            return
        overdue = {turn.container: turn for device in wanted for turn in waiting.overdue_on(device)}
        next_look = _FIRST_LOOK
        for place, turn in enumerate(sorted(overdue.values(), key=lambda turn: turn.order)):
            if place == next_look:
                next_look *= 2
                if not any(turn.claims for turn in waiting.fitting(wanted.intersection(devices), left)):
                    return
            if wanted.isdisjoint(turn.claims):
                continue
            if waiting.fits(turn, left):
                self._give(turn, room, left)
            else:
                self._backfill.reserve(turn, wanted, room, left)

    def _give(self, turn: Turn, *rooms: Sizes) -> None:
        for device, claim in turn.claims.items():
            for room in rooms:
                room[device] -= claim
        self._waiting.admit(turn)
        self._backfill.note(turn.container)

    def _first(self, turns: list[Turn], room: Sizes) -> Turn:
        """Return the first by priority and memory policy."""
        priority = max(turn.priority for turn in turns)
        views = [turn.view or self._waiting.view(turn) for turn in turns if turn.priority == priority]
        return self._residency.turns[self._state.policy.rank(views, room)[0].container]

    def _claimants(self) -> list[Turn]:
        """Return those for which others may lose their turn: of each device the first, overdue or by priority.

        On no other device an overdue one comes before it.
        """
        self._slices.next_end = inf if len(self._touched) == len(self._residency.devices) else self._slices.next_end
        first = [turn for device in self._touched if (turn := self._claimant(device)) is not None]
        claimants = {turn.container: turn for turn in first}.values()
        overdue_on = self._waiting.overdue_on
        return [turn for turn in claimants if all(next(overdue_on(device), turn) is turn for device in turn.claims)]

    def _claimant(self, device: str) -> Turn | None:
        overdue = next(self._waiting.overdue_on(device), None)
        if overdue is not None:
            return overdue
        ranked = (self._residency.turns[name] for _, _, name in self._waiting.ranked[device])
        return next((turn for turn in ranked if self._waiting.may_get(turn)), None)

    def _preempt(self, room: Sizes) -> Devices:
        """Give one turn for which running containers lose theirs, whose quanta are over; return the devices of all."""
        accounts = self._state.ledger.accounts
        for turn in self._claimants():
            if chosen := self._slices.choose(turn, room):
                for name in chosen:
                    self._residency.containers[name].is_preempted = True
                    self._residency.changed[name] = None
                self._update()
                self._give(turn)
                return dict.fromkeys(device for name in (*chosen, turn.container) for device in accounts[name])
        return {}

    # -- moves -----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Carry on every move; have memory leave as far as those with a turn lack it, or nobody may have it."""
        for turn in list(self._waiting.admitted.values()):
            self._moves.advance(turn)
        self._update()
        for device, pledged in self._waiting.pledged.items():
            lacking = pledged - self._room.free(device) - self._residency.evicting[device]
            if lacking > 0:
                self._moves.make_room(device, lacking)
        for name in list(self._residency.suspended):
            self._suspend(name)
        self._update()

    def _suspend(self, name: str) -> None:
        residence = self._residency.containers[name]
        stands_still = residence.is_stopped and not self._room.runs_on(name)
        runs = residence.phase is Phase.RUNNING or (residence.phase is Phase.STOPPED and not stands_still)
        if runs and self._state.now >= residence.busy_until:
            self._moves.stop(name)
        if residence.phase is Phase.STOPPED:
            self._moves.evict_all(name)

    # -- time ------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when time alone changes what is decided, None if it does not."""
        residency = self._residency
        stopping = [residency.containers[name] for name in residency.stopping]
        times = [residence.asked_at + 2 * DEADLINE for residence in stopping]
        times += [residence.stepped_at + STEP_AFTER for residence in stopping if self._may_step(residence)]
        waits = len(residency.turns) > len(self._waiting.admitted)
        times += [time for time in (self._slices.next_end, self._waiting.next_overdue()) if waits and time < inf]
        times += [residency.containers[name].leaves_at for name in residency.resting]
        times += [residency.containers[name].restore_at for name in residency.refused]
        busy = [residency.containers[name] for name in residency.busy if waits or name in residency.suspended]
        times += [residence.busy_until for residence in busy if residence.busy_until > self._state.now]
        return min(times, default=None)
