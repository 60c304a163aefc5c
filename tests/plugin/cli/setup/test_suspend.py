"""What `convgpu suspend` says of the room that a container left."""

import pytest

from convgpu.cli.setup.suspend import promised_still
from convgpu.protocol.records import Container, Device, Devices, Share

GIB = 1 << 30


def _device(promised: int) -> Devices:
    counts = {"total": 16 * GIB, "capacity": 16 * GIB, "granted": 9 * GIB, "used": 8 * GIB, "settling": 0}
    return Devices(devices=(Device(uuid="GPU-a", index=0, name="card", promised=promised, **counts),), policy="fifo")


@pytest.mark.parametrize(
    ("out", "promised", "kept"),
    [(8 * GIB, 16 * GIB, True), (8 * GIB, 24 * GIB, False), (0, 16 * GIB, False)],
)
def test_that_room_is_kept_is_said_where_no_more_is_promised_than_there_is(out: int, promised: int, kept: bool) -> None:
    share = Share(uuid="GPU-a", limit=9 * GIB, grant=8 * GIB, usage=8 * GIB, out=out)
    container = Container(name="v", mountpoint="/v", created=1.0, state="running", devices=(share,), suspended=True)
    assert ("CONVGPU_OVERSUBSCRIBE" in promised_still(container, _device(promised))) == kept
