"""Reports what the driver says of an address in the middle of an allocation of cuMemAlloc. JSON, one line.

Addresses are given as distances from the allocation's begin, so that two processes can be compared.
"""

import ctypes
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from driver import MIB, Driver

SIZE = 64 * MIB
INSIDE = 3 * MIB
# CUpointer_attribute of cuda.h; 64-bit addresses are DEVICE_POINTER, HOST_POINTER and RANGE_START_ADDR.
ATTRIBUTES = {
    "memory type": 2, "device pointer": 3, "host pointer": 4, "is managed": 8, "device ordinal": 9,
    "legacy IPC": 10, "range start": 11, "range size": 12, "mapped": 13, "access flags": 16, "pool": 17,
}  # fmt: skip
ADDRESSES = {"device pointer", "host pointer", "range start"}


def main() -> None:
    driver = Driver()
    driver.initialise()
    begin = driver.allocate(SIZE)
    found: dict[str, object] = {}
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_uint64(0)
        error = driver.library["cuPointerGetAttribute"](ctypes.byref(value), number, ctypes.c_uint64(begin + INSIDE))
        distance = value.value - begin if name in ADDRESSES else value.value
        found[name] = f"error {error}" if error else distance
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
