"""Each recorded history is replayed without a difference, although only the replay checks invariants."""

import msgspec
from test_histories import EXAMPLES, Histories, histories

from convgpu.core import events as e
from convgpu.core.machine import Machine
from convgpu.core.recording.format import Header, decode, encode, entry_of
from convgpu.core.recording.replay import Replay
from convgpu.core.step import Step


class RecordedMachine(Machine):
    """Writes each event and step into `lines`. Its invariants are not checked, those of the replay are."""

    def __init__(self, lines: list[bytes], machine: Machine) -> None:
        self.__dict__ |= machine.__dict__
        self.lines = lines

    def handle(self, event: e.Event, now: float) -> Step:
        step = super().handle(event, now)
        self.lines.append(encode(entry_of(now, event, step)))
        return step

    def check_invariants(self, now: float) -> None:
        pass


class RecordedHistories(Histories):
    def make_machine(self, policy: str, *, recovering: bool = False) -> Machine:
        header = Header("test", self.capacity, policy, 1, self.starvation_timeout, recovering)
        self.__dict__.setdefault("lines", []).append(encode(header))
        return RecordedMachine(self.lines, super().make_machine(policy, recovering=recovering))

    def teardown(self) -> None:
        if not hasattr(self, "host"):
            return
        super().teardown()
        assert [encode(decode(line)) for line in self.lines] == self.lines
        summary = Replay().play(self.lines)
        assert summary.difference is None
        assert summary.lines == len(self.lines)
        self.replay_with_one_effect_less()

    def replay_with_one_effect_less(self) -> None:
        entries = [(number, decode(line)) for number, line in enumerate(self.lines)]
        changed = next(((number, entry) for number, entry in entries if getattr(entry, "effects", ())), None)
        if changed is not None:
            number, entry = changed
            self.lines[number] = encode(msgspec.structs.replace(entry, effects=entry.effects[1:]))
            difference = Replay().play(self.lines).difference
            assert difference is not None
            assert difference.line == number + 1
            assert difference.actual == entry


TestBestFit = histories("best-fit", RecordedHistories, EXAMPLES // 3 + 1)
TestRandom = histories("random", RecordedHistories, EXAMPLES // 3 + 1)
