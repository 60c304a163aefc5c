"""What Slurm gave a job of one node, from Slurm's own document (`scontrol show job --json`). Pure.

It imports nothing, and takes documents as they are read: the Prolog runs before each job, and must not keep it waiting.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

# Short jobs of several nodes may be over before the Prolog of a node has begun, and Slurm has taken their cards back.
_OVER = frozenset({"COMPLETING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"})


def allotment(job: "Mapping[str, Any]", node: str, settings: "Mapping[str, Any]") -> "dict[str, object]":
    """Return the fields of `node_job.NodeJob`: what a job may have of a node.

    Args:
        job: as Slurm describes it.
        node: its name in Slurm.
        settings: the fields of `settings.Settings`.

    Raises:
        ValueError: the settings do not know the node, or a card of it has no number.
        KeyError, TypeError: one of the two has another form.
    """
    if node not in settings["nodes"]:
        raise ValueError(f"{node} is not in the settings of the cluster: run `convgpu slurm setup` there")
    granule, cards = settings["granule"], {card_number(card["file"]): card for card in settings["nodes"][node]}
    whole, shards = read_portion(_portions(job).get(node, ""), sorted(cards))
    counts = {number: reuse_count(cards[number]["capacity"], granule, settings["threshold"]) for number in whole}
    counts.update(shards)
    limits = {
        cards[number]["uuid"]: min(count * granule, cards[number]["capacity"]) for number, count in counts.items()
    }
    return {
        "job": job["job_id"],
        "node": node,
        "user": job["user_id"],
        "restarts": job["restart_cnt"],
        "cards": limits,
        "fault": _fault(job, shards) if limits or not cards_of(job) else _why_nothing(job),
        "network": count_of(job.get("tres_per_node", ""), "net") or 0,
    }


def reuse_count(capacity: int, granule: int, threshold: float) -> int:
    """Return how many containers of one granule a card takes."""
    return int(capacity * threshold) // granule


def card_number(file: str) -> int:
    """Return the number at the end of a card's file, by which SLURM_JOB_GPUS and the index of a share name it.

    Raises:
        ValueError: there is none.
    """
    digits = file[len(file.rstrip("0123456789")) :]
    if not digits:
        raise ValueError(f"{file} does not end with a number: Slurm names cards by it")
    return int(digits)


def count_of(tres: str, kind: str) -> int | None:
    """Return how many of a kind a list of resources has, as `gres/gpu:h200:2,gres/net:5`; None: it is not there."""
    for word in tres.split(","):
        name, *rest = word.removeprefix("gres/").replace("/", ":").replace("=", ":").split(":")
        if name == kind and rest and rest[-1].isdecimal():
            return int(rest[-1])
    return None


def cards_of(job: "Mapping[str, Any]") -> int:
    """Return how many cards a job asks for on all nodes."""
    if count_of(job.get("tres_per_task", ""), "shard") is not None:
        return int(job["tasks"]["number"])
    return (count_of(job.get("tres_per_node", ""), "gpu") or 0) * int(job["node_count"]["number"])


def read_portion(detail: str, numbers: "Sequence[int]") -> tuple[tuple[int, ...], dict[int, int]]:
    """Read a job's `gres_detail` on one node: whole cards by number, and shards by the card's number.

    Slurm prints whole cards as `gpu:h200:2(IDX:0,3-4)`, and of shares those used and all of each card in order:
    `shard:h200:100(50/80,50/80)`.

    Args:
        detail: as Slurm prints it.
        numbers: the cards' numbers, in the order of gres.conf.
    """
    whole: tuple[int, ...] = ()
    shards: dict[int, int] = {}
    for part in detail.split(")"):
        words, _, place = part.partition("(")
        kind = words.rpartition(",")[2].partition(":")[0]
        if kind == "gpu" and place.startswith("IDX:"):
            whole = tuple(numbers[index] for index in _indices(place.removeprefix("IDX:")))
        elif kind == "shard":
            used = [int(share.partition("/")[0]) for share in place.split(",") if "/" in share]
            shards = {number: count for number, count in zip(numbers, used, strict=False) if count}
    return whole, shards


def _indices(text: str) -> "Iterator[int]":
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal():
            yield from range(int(first), int(last if dash else first) + 1)


def _portions(job: "Mapping[str, Any]") -> dict[str, str]:
    """Return what it has of each node: `gres_detail` by the node's name."""
    nodes = (job.get("job_resources") or {}).get("nodes") or {}
    names = [row["name"] for row in nodes.get("allocation", ())]
    return dict(zip(names, job.get("gres_detail", ()), strict=False))


def _why_nothing(job: "Mapping[str, Any]") -> str:
    """Say why Slurm names no cards of this node for a job that asks for some."""
    states = " ".join(job["job_state"]).lower()
    if _OVER.isdisjoint(job["job_state"]):
        return f"Slurm names no cards of this node for the job, which is {states}"
    return f"the job is {states}: it ended before its Prolog ran on this node"


def _fault(job: "Mapping[str, Any]", shards: "Mapping[int, int]") -> str:
    """Say what is wrong with shares: each must hold what one task asked for, whole."""
    asked = count_of(job.get("tres_per_task", ""), "shard")
    if not shards or (asked and all(count % asked == 0 for count in shards.values())):
        return ""
    if asked is None and len(shards) == 1:
        return ""
    return (
        "Slurm has split the share over cards, because its job_submit.lua is not ConvGPU's.\n"
        "Type: --tres-per-task=gres/shard:N in place of --gres=shard:N, or convgpu submit"
    )
