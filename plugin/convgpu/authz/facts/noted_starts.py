"""Notes who starts a container although rules speak against it."""

from contextlib import suppress

from convgpu.authz.facts.permits import Permits
from convgpu.authz.ports import EngineHolds, EnginePort, EngineUnreachable


class NotedStarts:
    """Starts as the notes have them, by what the Engine says of a container.

    Args:
        engine: is asked.
        permits: the notes.
    """

    def __init__(self, engine: EnginePort, permits: Permits) -> None:
        self._engine = engine
        self._permits = permits

    def permit(self, name: str) -> None:
        """Note a start that passes whatever the rules say: if the container gets a GPU without a limit, it keeps it.

        Anybody can make a container that the Engine holds: that must not make all others permitted.
        """
        try:
            self.note(self._id(name), permitted=True)
        except EngineUnreachable:
            self._permits.begin_anew()

    def _id(self, name: str) -> str:
        try:
            return str((self._engine.container(name) or {}).get("Id") or "")
        except EngineHolds:
            return self._engine.id_of(name) or ""

    def note(self, container: str, *, permitted: bool) -> None:
        """Note how a container starts, by its id; empty: there is none."""
        if permitted and self._permits.is_full:
            with suppress(EngineUnreachable):
                self._permits.keep_only(self._engine.states())
        if container:
            self._permits.note(container, permitted=permitted)
