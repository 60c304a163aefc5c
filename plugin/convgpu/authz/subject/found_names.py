"""What the names of a call meant when it was judged: the Engine looks them up again when it carries the call out."""

import re
from collections.abc import Iterator
from typing import Final

from convgpu.authz.ports import EnginePort
from convgpu.authz.requests import go_json
from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal

_FULL_ID: Final = re.compile("[0-9a-f]{64}")
_CHANGED: Final = Refusal("strict-names", "while this was judged, the name came to mean another container.\nTry again.")
_NOBODY: Final = Refusal("strict-names", "no such container.\nWho makes one just now may give it more than others may.")


class FoundNames:
    """The containers that a call names, as they were found for its judgement."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # by name; empty for none

    def add(self, name: str, subject: Subject | None) -> None:
        """Note the container that was found by a name."""
        self._ids[name] = "" if subject is None else subject.container.id

    def changed(self, engine: EnginePort) -> Iterator[Refusal]:
        """Refuse names that mean another container now than the one that was judged, or that mean one only now.

        Judging can take a second; from here to the Engine's own look it is some milliseconds (decision 185).

        Raises:
            EngineUnreachable: the Engine does not answer.
        """
        for name, judged in self._ids.items():
            if judged == name and _FULL_ID.fullmatch(name):
                continue  # an ID never means another one
            if not judged:
                yield _NOBODY
            elif go_json.text(engine.container(name) or {}, "id") != judged:
                yield _CHANGED
