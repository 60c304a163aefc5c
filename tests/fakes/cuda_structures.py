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


def pool_properties(kind: int = DEVICE, number: int = 0, *, most: int = 0, handle: int = 0, type_: int = PINNED) -> str:
    return struct.pack("iiiiPQH54x", type_, handle, kind, number, 0, most, 0).hex()
