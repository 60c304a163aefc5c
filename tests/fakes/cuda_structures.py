"""The structures of cuda.h as hex text, for the letter `b` of cuda_signatures.py."""

import struct

PINNED, MANAGED = 1, 2
DEVICE, HOST, HOST_NUMA = 1, 2, 3


def location(kind: int, number: int = 0) -> str:
    return struct.pack("ii", kind, number).hex()


def array(width: int, height: int, format_: int, channels: int = 1) -> str:
    return struct.pack("NNiI", width, height, format_, channels).hex()


def array_3d(width: int, height: int, depth: int, format_: int, channels: int = 1, flags: int = 0) -> str:
    return struct.pack("NNNiII4x", width, height, depth, format_, channels, flags).hex()


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
