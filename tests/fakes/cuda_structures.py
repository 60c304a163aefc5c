"""The structures of cuda.h as hex text, for the letter `b` of cuda_signatures.py."""

import struct
from dataclasses import dataclass

PINNED, MANAGED = 1, 2
DEVICE, HOST, HOST_NUMA = 1, 2, 3
HOST_SIDE, DEVICE_SIDE, ARRAY, UNIFIED = 1, 2, 3, 4


def location(kind: int, number: int = 0) -> str:
    return struct.pack("ii", kind, number).hex()


def array(width: int, height: int, format_: int, channels: int = 1) -> str:
    return struct.pack("NNiI", width, height, format_, channels).hex()


def array_3d(width: int, height: int, depth: int, format_: int, channels: int = 1, flags: int = 0) -> str:
    return struct.pack("NNNiII4x", width, height, depth, format_, channels, flags).hex()


@dataclass(frozen=True)
class Side:
    """One side of a copy in three dimensions; offsets and pitch in bytes, rows and layers."""

    kind: int
    at: int = 0
    x: int = 0
    y: int = 0
    z: int = 0
    pitch: int = 0
    height: int = 0
    level: int = 0
    context: int = 0

    def packed(self) -> bytes:
        places = [self.at if self.kind in kinds else 0 for kinds in ((HOST_SIDE,), (DEVICE_SIDE, UNIFIED), (ARRAY,))]
        offsets = (self.x, self.y, self.z, self.level)
        return struct.pack("NNNNi4xPQPPNN", *offsets, self.kind, *places, self.context, self.pitch, self.height)


def solid_copy(to: Side, from_: Side, width: int, height: int = 1, depth: int = 1) -> str:
    return (from_.packed() + to.packed() + struct.pack("NNN", width, height, depth)).hex()


def pointer_operand(address: int, row: int = 0, layer: int = 0) -> bytes:
    return struct.pack("i4xQNNii", 1, address, row, layer, 0, 0)


def array_operand(array: int, x: int = 0, y: int = 0, z: int = 0) -> bytes:
    return struct.pack("i4xPNNN", 2, array, x, y, z)


def batched_solid(to: bytes, from_: bytes, extent: tuple[int, int, int], order: int = 1, flags: int = 0) -> str:
    return (from_ + to + struct.pack("NNNiI", *extent, order, flags)).hex()


def copy_attributes(order: int = 1, flags: int = 0) -> str:
    return struct.pack("iiiiiI", order, 0, 0, 0, 0, flags).hex()


def numbers(*values: int) -> str:
    """Return an array of numbers of 64 bits."""
    return struct.pack(f"{len(values)}Q", *values).hex()


def multicast_properties(size: int, devices: int = 1, *, handle: int = 0, flags: int = 0) -> str:
    return struct.pack("INQQ", devices, size, handle, flags).hex()


def access(flags: int, number: int = 0, kind: int = DEVICE) -> str:
    return struct.pack("iii", kind, number, flags).hex()


def allocation_properties(kind: int = DEVICE, number: int = 0, *, handle: int = 0, type_: int = PINNED) -> str:
    return struct.pack("iiiiP8x", type_, handle, kind, number, 0).hex()


def allocation_node(size: int, number: int = 0, *, handle: int = 0) -> str:
    return pool_properties(DEVICE, number, handle=handle) + struct.pack("PNNQ", 0, 0, size, 0).hex()


def node(kind: int, parameters: str) -> str:
    """Return a CUgraphNodeParams of what cuGraphAdd...Node would take."""
    return struct.pack("i12x", kind).hex() + parameters.ljust(2 * 240, "0")


def allocated_address(parameters: str) -> int:
    """Return what an allocation node (or a CUgraphNodeParams) has been given, by its length."""
    return struct.unpack_from("Q", bytes.fromhex(parameters), 112 if len(parameters) == 240 else 128)[0]


def pool_properties(kind: int = DEVICE, number: int = 0, *, most: int = 0, handle: int = 0, type_: int = PINNED) -> str:
    return struct.pack("iiiiPQH54x", type_, handle, kind, number, 0, most, 0).hex()
