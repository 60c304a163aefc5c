"""The reasons why no GPU can be chosen for a container, as one line for its user."""

from collections.abc import Sequence

from convgpu.core.placement import Obstacle, Placement
from convgpu.core.volume_options import DeviceCapacity
from convgpu.protocol.sizes import format_size


def describe_obstacles(proposal: Placement, devices: Sequence[DeviceCapacity]) -> str:
    """Return why too few devices are candidates. FAILED has 240 bytes, so devices of one reason are one word."""
    limit = max((row.limit for row in proposal.compared), default=0)
    texts = {
        Obstacle.LOST: "lost",
        Obstacle.DRAINED: "drained",
        Obstacle.CAPACITY: f"less than {format_size(limit)} to hand out",
        Obstacle.GANG: "too little beside its gang",
        Obstacle.REUSE: "as many containers as its reuse count",
        Obstacle.HIDDEN: "not in this container",
        None: "free to be chosen",
    }
    parts = []
    for obstacle, text in texts.items():
        uuids = [row.device for row in proposal.compared if row.obstacle is obstacle]
        if uuids:
            parts.append(f"{text}: {list_indices(devices, uuids)}")
    return f"too few GPUs can be had now ({'; '.join(parts)}); see convgpu devices, and start the container again"


def describe_absence(chosen: Sequence[str], visible: Sequence[str], devices: Sequence[DeviceCapacity]) -> str:
    """Return why a process cannot use the devices that were chosen for its container: it sees only others."""
    return (
        f"this container is on GPU {list_indices(devices, chosen)} and this process sees GPU "
        f"{list_indices(devices, visible) or 'none'} only; give the volume gpus=all, or the container all GPUs"
    )


def list_indices(devices: Sequence[DeviceCapacity], uuids: Sequence[str]) -> str:
    """Return the numbers of devices, with commas between."""
    return ", ".join(str(device.index) for device in devices if device.uuid in uuids)
