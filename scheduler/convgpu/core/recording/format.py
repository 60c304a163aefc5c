"""The lines of a recording: a header for each machine, then one entry for each event that it handled.

A line is a JSON object; `line` says which of the two it is. Nothing is lost: an event that is read again is equal to
the one that was written.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from convgpu.core.events import Effect, Event, TakeHeadroom
from convgpu.core.machine import Machine
from convgpu.core.residency.quantum import SWITCH_COST
from convgpu.core.step import Step
from convgpu.policies.eviction import DEFAULT_EVICTION, EVICTION_POLICIES
from convgpu.policies.memory import POLICIES, make_policy
from convgpu.policies.placement import DEFAULT_PLACEMENT, PLACEMENT_POLICIES

FORMAT: Final = 1


class RecordingError(ValueError):
    """A line that cannot be read or replayed. The message has no line number: the reader of the file knows it."""


class Header(msgspec.Struct, frozen=True, tag_field="line", tag="header", forbid_unknown_fields=True):
    """The machine before its first event.

    Attributes:
        format: of the recording; a reader knows one.
        version: of ConvGPU, for people.
        capacity: bytes per device.
        policy: name of the policy.
        seed: of a policy that chooses at random.
        starvation_timeout: seconds; None if it is infinite, which JSON cannot say.
        recovering: whether no grants are given before RecoveryEnded.
        placement: name of the policy that chooses devices.
        eviction: name of the policy that chooses whose memory leaves.
        switch_cost: the share of the time that time slices may cost.
    """

    version: str
    capacity: Mapping[str, int]
    policy: str
    seed: int
    starvation_timeout: float | None
    recovering: bool
    placement: str = DEFAULT_PLACEMENT
    eviction: str = DEFAULT_EVICTION
    switch_cost: float = SWITCH_COST
    format: Literal[1] = FORMAT

    def make_machine(self) -> Machine:
        """Return a fresh machine as the recorded one was.

        Raises:
            RecordingError: this version does not know the policy.
        """
        if self.policy not in POLICIES:
            raise RecordingError(f"there is no policy {self.policy!r} in this version")
        if self.placement not in PLACEMENT_POLICIES:
            raise RecordingError(f"there is no placement policy {self.placement!r} in this version")
        if self.eviction not in EVICTION_POLICIES:
            raise RecordingError(f"there is no eviction policy {self.eviction!r} in this version")
        timeout = math.inf if self.starvation_timeout is None else self.starvation_timeout
        policy = make_policy(self.policy, self.seed)
        return Machine(
            self.capacity,
            policy,
            timeout,
            recovering=self.recovering,
            placement=self.placement,
            eviction=self.eviction,
            switch_cost=self.switch_cost,
        )


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="line", tag="event", forbid_unknown_fields=True):
    """An event and its step. `error`: what the machine raised instead of a step, None if it did not."""

    now: float
    event: Event
    effects: tuple[Effect, ...] = ()
    needs: TakeHeadroom | None = None
    error: str | None = None


class _FormatOnly(msgspec.Struct):
    line: str
    format: int


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Header | Entry]] = msgspec.json.Decoder(Header | Entry)
_FORMAT_DECODER: Final = msgspec.json.Decoder(_FormatOnly)


def entry_of(now: float, event: Event, outcome: Step | Exception) -> Entry:
    """Return the entry of an event that was handled, or that the machine could not handle."""
    if isinstance(outcome, Step):
        return Entry(now, event, outcome.effects, outcome.needs)
    return Entry(now, event, error=f"{type(outcome).__name__}: {outcome}")


def encode(line: Header | Entry) -> bytes:
    """Return the line with its newline."""
    return _ENCODER.encode(line) + b"\n"


def decode(line: bytes) -> Header | Entry:
    """Return what a line says.

    Raises:
        RecordingError: the line is cut off, of another format, or none of a recording.
    """
    if not line.endswith(b"\n"):
        raise RecordingError("the line is cut off")
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise RecordingError(_find_reason(line, error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordingError(f"this is no line of a recording: {error}") from error


def _find_reason(line: bytes, error: msgspec.ValidationError) -> str:
    """Return why a line that is JSON is refused: another format is the first thing to know about it."""
    try:
        found = _FORMAT_DECODER.decode(line)
    except msgspec.DecodeError:
        return f"this is no line of a recording: {error}"
    if found.line == "header" and found.format != FORMAT:
        return f"the recording has format {found.format}, and this version reads format {FORMAT}"
    return f"this is no line of a recording: {error}"
