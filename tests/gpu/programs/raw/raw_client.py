"""Takes memory of the card by its own requests to the kernel's driver, without NVIDIA's libraries or a context.

    python3 raw_client.py MIB CROWD [MIB_OF_DEAD]

CROWD: that many more processes have a device each, and no memory. MIB_OF_DEAD: so much is taken by a process that ends
at once, and another one keeps its descriptors. Says "holding", and stays. Of the structures see
scheduler/convgpu/daemon/gpu/kernel_driver.py; what is allocated is NV01_MEMORY_LOCAL_USER with
NV_MEMORY_ALLOCATION_PARAMS (open-gpu-kernel-modules, src/common/sdk/nvidia/inc/nvos.h).
"""

import ctypes
import fcntl
import json
import os
import signal
import struct
import sys
from pathlib import Path

ROOT, DEVICE, MEMORY = 0x41, 0x80, 0x40
DEVICE_SIZE, MEMORY_SIZE, SIZE_AT = 56, 128, 64  # the parameters' sizes in bytes, and where memory's size stands
OWNER = 0xC0DE  # any but 0; it stands first


def open_driver() -> tuple[int, int]:
    """Return a descriptor of the driver, and a client of ours."""
    control = os.open("/dev/nvidiactl", os.O_RDWR)
    for node in Path("/dev").glob("nvidia[0-9]*"):
        os.open(node, os.O_RDWR)
    return control, allocate(control, (0, 0, 0), ROOT, b"")


def allocate(control: int, handles: tuple[int, int, int], kind: int, parameters: bytes) -> int:
    """Allocate an object; `handles`: of the client, its parent, its own."""
    words = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
    at = ctypes.addressof(words) if parameters else 0
    request = bytearray(struct.pack("=IIIIQII", *handles, kind, at, 0, 0))  # NVOS21_PARAMETERS
    fcntl.ioctl(control, 3 << 30 | len(request) << 16 | ord("F") << 8 | 0x2B, request)
    *_, handle, _, _, _, status = struct.unpack("=IIIIQII", request)
    assert status == 0, f"class {kind:#x}: status {status:#x}"
    return handle


def take(size: int) -> None:
    """Have a device of our own, and so many bytes of it."""
    control, client = open_driver()
    allocate(control, (client, client, 1), DEVICE, bytes(DEVICE_SIZE))
    if size:
        parameters = bytearray(MEMORY_SIZE)
        struct.pack_into("=I", parameters, 0, OWNER)
        struct.pack_into("=Q", parameters, SIZE_AT, size)
        allocate(control, (client, 1, 2), MEMORY, bytes(parameters))


def leave(size: int) -> None:
    """Have a process take memory and end, while a child of it keeps its descriptors."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        take(size)
        if os.fork() == 0:
            os.write(writing, b"x")
            signal.pause()
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"x", "it has not got its memory"
    os.wait()


def main() -> None:
    mib, crowd, of_dead = (int(word) for word in (*sys.argv[1:], 0)[:3])
    for _ in range(crowd):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            take(0)
            os.write(writing, b"x")
            signal.pause()
        os.close(writing)
        assert os.read(reading, 1) == b"x", "one of the crowd has failed"
        os.close(reading)
    take(mib << 20)
    if of_dead:
        leave(of_dead << 20)
    print(json.dumps({"event": "holding"}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
