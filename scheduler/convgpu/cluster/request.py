"""What a user asks of the cluster, and the words of `sbatch` that ask Slurm for it. Pure."""

from __future__ import annotations

from convgpu.cluster.shares import GIB, MIB, shards_for
from convgpu.protocol.quick.record import Record
from convgpu.protocol.quick.shell import join
from convgpu.protocol.sizes import format_size

TYPE_CHECKING = False  # `convgpu submit` waits for imports (decision 152)
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from convgpu.cluster.shares import NodeSize

_FNV_BASIS: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


class Submission(Record):
    """A job that runs one container on each of its nodes.

    Attributes:
        container: the words of `convgpu job`: Docker's options, IMAGE and its command.
        memory: bytes of each card; None: whole cards.
        cards: on each node.
        nodes: of the job.
        time: its limit in Slurm's form; None: the partition's.
        network: Gbit/s on each node that are counted; None: none.
        near: seconds that the job waits for nodes at one switch; None: it takes any.
        partition: None: the default.
        name: of the job.
        output: file for stdout and stderr, as for `sbatch`.
        requeue: it goes on from its checkpoint when it was displaced or its node failed.
        cpus: for each card; None: Slurm's default.
        extra: further words for `sbatch`.
        comment: by which the controller knows the job's work.
        wait: seconds that the controller has to correct the request before Slurm starts the job; None: none.
    """

    container: Sequence[str]
    memory: int | None = None
    cards: int = 1
    nodes: int = 1
    time: str | None = None
    network: int | None = None
    near: float | None = None
    partition: str | None = None
    name: str = "convgpu"
    output: str = "convgpu-%j.log"
    requeue: bool = True
    cpus: int | None = None
    extra: Sequence[str] = ()
    comment: str = ""
    wait: int | None = None


def job_comment(words: Sequence[str], *, auto: bool) -> str:
    """Return the comment by which the controller knows a job's work.

    Args:
        words: image and command.
        auto: whether the size is to be learned.
    """
    kind = _FNV_BASIS
    for byte in join(words).encode():  # FNV-1a: hashlib would take longer to import than all of this
        kind = (kind ^ byte) * _FNV_PRIME & (1 << 64) - 1
    return f"convgpu kind={kind:016x}{' memory=auto' if auto else ''}"


class ImpossibleError(ValueError):
    """The cluster cannot run it; one line that says what to type instead."""


def sbatch_words(asked: Submission, granule: int) -> list[str]:
    """Return the words of `sbatch` before the script.

    Shares are asked for by task, because Slurm keeps a task's share on one card; whole cards by node.
    """
    words = [f"--job-name={asked.name}", f"--output={asked.output}", "--open-mode=append", f"--nodes={asked.nodes}"]
    per_node = []
    if asked.memory is None:
        words += [f"--ntasks={asked.nodes}", "--ntasks-per-node=1"]
        per_node.append(f"gpu:{asked.cards}")
    else:
        words += [f"--ntasks={asked.nodes * asked.cards}", f"--ntasks-per-node={asked.cards}"]
        words.append(f"--tres-per-task=gres/shard:{shards_for(asked.memory, granule)}")
    if asked.network is not None:
        per_node.append(f"net:{asked.network}")
    words += [f"--gres={','.join(per_node)}"] if per_node else []
    words += [f"--switches=1@{clock_time(asked.near)}"] if asked.near is not None else []
    words += [f"--time={asked.time}"] if asked.time else []
    words += [f"--partition={asked.partition}"] if asked.partition else []
    words += [f"--cpus-per-task={asked.cpus}"] if asked.cpus else []
    words += [f"--comment={asked.comment}"] if asked.comment else []
    words += [f"--begin=now+{asked.wait}"] if asked.wait else []
    return [*words, "--requeue" if asked.requeue else "--no-requeue", *asked.extra]


def clock_time(seconds: float) -> str:
    """Return a time as Slurm writes and takes it: HH:MM:SS."""
    whole = max(round(seconds), 0)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def check_fits(asked: Submission, sizes: Sequence[NodeSize], granule: int) -> None:
    """Check a request against what the nodes have.

    Raises:
        ImpossibleError: no wait can help.
    """
    with_cards = [size for size in sizes if size.cards]
    if not with_cards:
        raise ImpossibleError("no node of the cluster has GPUs. See: sinfo -N -o '%N %G', and convgpu slurm setup")
    most = max(size.cards for size in with_cards)
    if asked.cards > most:
        widest = sum(size.cards == most for size in with_cards)
        nodes = -(-asked.nodes * asked.cards // most)
        instead = f"type --nodes {min(nodes, widest)} --gpus {most}"
        as_many = " for as many over nodes" if nodes <= widest else ", which is all there is"
        raise ImpossibleError(f"no node has more than {most} GPUs: {instead}{as_many}")
    fitting = [size for size in with_cards if size.cards >= asked.cards]
    if asked.memory is not None:
        largest = max(size.shards for size in fitting)
        if not largest:
            raise ImpossibleError(
                "the cluster does not share its GPUs: leave out --gpu-memory, or see convgpu slurm setup"
            )
        fitting = [size for size in fitting if size.shards >= shards_for(asked.memory, granule)]
        if not fitting:
            raise ImpossibleError(
                f"no GPU of the cluster has {format_size(asked.memory)}: "
                f"type --gpu-memory {_as_typed(largest * granule)}, or less"
            )
    if asked.network is not None:
        fitting = _with_network(asked.network, fitting)
    if asked.nodes > len(fitting):
        raise ImpossibleError(f"only {len(fitting)} nodes can run such a job: type --nodes {len(fitting)}, or fewer")


def _as_typed(size: int) -> str:
    """Return a size as users type it: 16g, or 1280m."""
    return f"{size // MIB}m" if size % GIB else f"{size // GIB}g"


def _with_network(wanted: int, sizes: Sequence[NodeSize]) -> list[NodeSize]:
    """Return the nodes with so many Gbit/s."""
    most = max(size.network for size in sizes)
    if not most:
        raise ImpossibleError(
            "Slurm counts no network here: leave out --network, or on each node: convgpu slurm setup --network 25gbit"
        )
    if wanted > most:
        raise ImpossibleError(f"no such node has {wanted} Gbit/s: type --network {most}gbit, or less")
    return [size for size in sizes if size.network >= wanted]


_HEAD = """\
#!/bin/bash
# Written by `convgpu submit`. A signal to the job reaches the container's first process.
"""

# What the step would take over from the job: its share by task. The container gets all cards of the node.
_ONE_NODE = "exec {job}\n"
_MANY_NODES = """\
unset SLURM_TRES_PER_TASK SLURM_NTASKS_PER_NODE SLURM_NTASKS
on_each_node() {{
    srun --overlap --gres=none --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 "$@"
}}
on_each_node {prepare} || exit
on_each_node {job} &
trap 'wait' TERM
wait $!
"""


def batch_script(asked: Submission, image: str) -> str:
    """Return the script: one container on each node, started when the image is there on all of them."""
    job = join(["convgpu", "job", *asked.container])
    if asked.nodes == 1:
        return _HEAD + _ONE_NODE.format(job=job)
    return _HEAD + _MANY_NODES.format(job=job, prepare=join(["convgpu", "job", "--pull-only", image]))
