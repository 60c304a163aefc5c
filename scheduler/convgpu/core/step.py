"""The answer of the machine to one event: effects to be carried out, and the answer that it needs next."""

from dataclasses import dataclass

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.events import Effect, TakeHeadroom


@dataclass(frozen=True, slots=True)
class Step:
    """What has to be done after an event.

    Attributes:
        effects: to be carried out, in this order.
        needs: to be carried out after the effects; HeadroomTaken with what was there has to be the next event. None
            when the machine waits for no answer and any event may come.
    """

    effects: tuple[Effect, ...]
    needs: TakeHeadroom | None = None


class StepBuilder:
    """Collects what one event leads to. At most one question, and nothing after it: its answer is the next event."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._needs: TakeHeadroom | None = None

    @property
    def needs_answer(self) -> bool:
        """Whether the step has a question, so that nothing more can be decided before its answer."""
        return self._needs is not None

    def add(self, effect: Effect) -> None:
        """Append an effect.

        Raises:
            InvariantBrokenError: the step needs an answer already, and nothing may follow before it.
        """
        if self._needs is not None:
            raise InvariantBrokenError(f"{effect} is decided although an answer is due to {self._needs}")
        self._effects.append(effect)

    def need(self, question: TakeHeadroom) -> None:
        """Make HeadroomTaken the next event.

        Raises:
            InvariantBrokenError: the step needs another answer already.
        """
        if self._needs is not None:
            raise InvariantBrokenError(f"{question} is asked although an answer is due to {self._needs}")
        self._needs = question

    def build(self) -> Step:
        """Return the step and begin the next one."""
        step = Step(tuple(self._effects), self._needs)
        self._effects, self._needs = [], None
        return step
