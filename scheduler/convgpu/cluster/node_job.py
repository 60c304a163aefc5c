"""What a node knows of a job that runs on it: the file that the Prolog writes and the Epilog removes. Pure.

`convgpu job` reads it before each container of a job, so it imports next to nothing (decision 144).
"""

from __future__ import annotations

from convgpu.protocol.quick import quick_json
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final


class NodeJob(Record):
    """A job's share of one node.

    Attributes:
        job: Slurm's id.
        node: its name in Slurm.
        user: whose it is, as a number.
        restarts: how often it was requeued.
        cards: bytes by UUID that its containers may use together.
        fault: why its containers must not start; one line, empty for none.
        network: Gbit/s of the node that Slurm counts for it; 0: it asked for none.
    """

    job: int
    node: str
    user: int
    restarts: int
    cards: Mapping[str, int]
    fault: str = ""
    network: int = 0


_KINDS: Final = {"job": int, "node": str, "user": int, "restarts": int, "cards": dict, "fault": str, "network": int}


def read_node_job(text: str | bytes) -> NodeJob:
    """Return a job's share of a node. Fields that we do not know are passed over.

    Raises:
        ValueError: the text has another form.
    """
    found = quick_json.loads(text if isinstance(text, bytes) else text.encode())
    if not isinstance(found, dict):
        raise ValueError("it is no object of JSON")  # noqa: TRY004 - as of all other damage
    fields = {name: value for name, value in found.items() if name in _KINDS}
    wrong = [name for name, value in fields.items() if type(value) is not _KINDS[name]]
    cards = fields.get("cards", {})
    if wrong or any(type(size) is not int for size in cards.values()):
        raise ValueError(f"{(wrong or ['cards'])[0]} has another form than the Prolog writes")
    try:
        return NodeJob(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from error
