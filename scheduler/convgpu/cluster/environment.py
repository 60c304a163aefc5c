"""The variables by which frameworks find the other workers of a job. Pure.

torchrun reads PET_*: https://docs.pytorch.org/docs/stable/elastic/run.html; TensorFlow reads TF_CONFIG:
https://www.tensorflow.org/guide/distributed_training; MXNet reads DMLC_*.
"""

from __future__ import annotations

from convgpu.protocol.quick import quick_json
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False  # a container of a job waits for imports (decision 144)
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

_FIRST_PORT: Final = 20_000
_PORTS: Final = 20_000


class Place(Record):
    """Where a container of a job runs.

    Attributes:
        job: Slurm's id.
        nodes: addresses of all nodes of the job, in its order.
        rank: of this node among them.
        cards: of the job on each node.
        restarts: how often the job was requeued.
    """

    job: int
    nodes: Sequence[str]
    rank: int
    cards: int
    restarts: int


def port(job: int) -> int:
    """Return the port at which the workers of a job meet; jobs at the same time have different ones."""
    return _FIRST_PORT + job % _PORTS


def variables(place: Place) -> dict[str, str]:
    """Return the environment of a container, for any framework."""
    nodes, meeting = len(place.nodes), str(port(place.job))
    master = place.nodes[0]
    return {
        "CONVGPU_JOB": str(place.job),
        "CONVGPU_RESTART": str(place.restarts),
        "MASTER_ADDR": master,
        "MASTER_PORT": meeting,
        "NODE_RANK": str(place.rank),
        # One process for each card: torchrun starts them and counts on from these. A container of one card needs none.
        **({"RANK": str(place.rank), "WORLD_SIZE": str(nodes), "LOCAL_RANK": "0"} if place.cards == 1 else {}),
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(place.cards),
        "PET_NODE_RANK": str(place.rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": meeting,
        **_tensorflow(place, meeting),
        **_mxnet(place, meeting),
    }


def _tensorflow(place: Place, meeting: str) -> dict[str, str]:
    workers = [f"{node}:{meeting}" for node in place.nodes]
    task = {"type": "worker", "index": place.rank}
    return {"TF_CONFIG": quick_json.dumps({"cluster": {"worker": workers}, "task": task})}


def _mxnet(place: Place, meeting: str) -> dict[str, str]:
    return {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": place.nodes[0],
        "DMLC_PS_ROOT_PORT": meeting,
        "DMLC_NUM_WORKER": str(len(place.nodes)),
        "DMLC_WORKER_ID": str(place.rank),
    }
