"""What of each device may be handed out: its total, less what foreign processes hold, less the reserve.

Foreign memory is measured when the scheduler starts and no container of ours runs. While containers of an earlier run
use memory, a measurement would count theirs; then the earlier figure is taken, which lies in `foreign.json`.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from convgpu.daemon.devices import Device, DeviceError
from convgpu.daemon.options import DeviceCapacity

log = logging.getLogger(__name__)

_FOREIGN: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])


def measure_capacities(
    directory: Path, present: Sequence[Device], reserve: int, *, recovering: bool
) -> list[DeviceCapacity]:
    """Return the devices that have anything to hand out, in bytes.

    Raises:
        DeviceError: none has.
        OSError: the figures cannot be written.
    """
    file = directory / "foreign.json"
    foreign = {device.uuid: device.total - device.free for device in present}
    if recovering:
        foreign |= _read(file)
    rows = []
    for device in present:
        capacity = device.total - foreign[device.uuid] - reserve
        if capacity > 0:
            rows.append(DeviceCapacity(device.uuid, device.index, capacity))
        else:
            log.error("device %s is left out: all of it is in use or reserved", device.uuid)
    if not rows:
        raise DeviceError("no device has memory to hand out: all of it is in use by other programs, or reserved")
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(foreign))
    fresh.replace(file)
    return rows


def _read(file: Path) -> dict[str, int]:
    try:
        return _FOREIGN.validate_json(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        log.error("%s cannot be read; foreign memory is measured anew: %s", file, error)
        return {}
