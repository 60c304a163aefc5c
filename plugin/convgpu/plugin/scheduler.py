"""The scheduler as the plugin sees it: what it can be asked, and the answers that more than one place needs."""

from typing import Protocol, TypeVar

import msgspec

from convgpu.client.admin import SchedulerRefused
from convgpu.protocol.records import Container, Containers, Record


class Scheduler(Protocol):
    """Anything that answers administration requests, `convgpu.client.admin.AdminClient` first of all."""

    def request(self, op: str, **fields: object) -> dict[str, object]:
        """Return the `ok` object of the answer (docs/protocol.md, Administration).

        Raises:
            SchedulerRefused: the scheduler said no; the text is for the user.
            SchedulerUnavailable: no answer in time.
        """
        ...

    def request_json(self, op: str, **fields: object) -> bytes:
        """Return the same as JSON, as the scheduler wrote it."""
        ...


RecordT = TypeVar("RecordT", bound=Record)


def ask(scheduler: Scheduler, record: type[RecordT], op: str, **fields: object) -> RecordT:
    """Return the answer to a question as the record that it is.

    Raises:
        SchedulerRefused, SchedulerUnavailable: as `Scheduler.request`.
        msgspec.DecodeError: the answer is another one.
    """
    return msgspec.json.decode(scheduler.request_json(op, **fields), type=record)


def list_containers(scheduler: Scheduler) -> list[Container]:
    """Return all containers that the scheduler knows."""
    return list(ask(scheduler, Containers, "containers").containers)


def find_container(scheduler: Scheduler, name: str) -> Container | None:
    """Return the container with the volume `name`, or None if the scheduler does not know it."""
    try:
        return next(iter(ask(scheduler, Containers, "containers", name=name).containers), None)
    except SchedulerRefused as refusal:
        # A name that no volume of ours can have is as unknown as one that none happens to have.
        if refusal.code in {"unknown", "invalid"}:
            return None
        raise
