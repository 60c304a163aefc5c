"""Refuses a new container that names GPUs to which an administrator gives no new memory. Pure.

The scheduler refuses options of volumes that name such a GPU; that the container names it, only the Engine's call says.
"""

from collections.abc import Iterator

from convgpu.authz.subject.subject import Subject
from convgpu.authz.verdict import Refusal


def named_gpus(subject: Subject) -> Iterator[Refusal]:
    """Refuse GPUs that are named and drained, as the options of a volume that names them are refused."""
    drained = [
        device.index for device in subject.gpus if device.drained and _is_named(subject, device.uuid, device.index)
    ]
    left = [str(device.index) for device in subject.gpus if device.health == "ok" and not device.drained]
    if drained:
        another = f"Name another: --gpus device={left[0]}. " if left else ""
        yield Refusal(
            "gpu-drained",
            f"GPU {', '.join(map(str, drained))} is drained, and --gpus gives the container no other in its place.\n"
            f"{another}To wait for it: volume-opt=gpus=all. To put it back: convgpu drain {drained[0]} --undo",
        )


def _is_named(subject: Subject, uuid: str, index: int) -> bool:
    return not {uuid, str(index)}.isdisjoint(name.strip() for name in subject.container.chosen.split(","))
