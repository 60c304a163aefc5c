"""The claims of all holders in C, where a question costs microseconds (hook/src/claims/safety_walk.c)."""

import ctypes
import struct
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path

from convgpu.core.memory.bankers import Claim, Sizes


class SafetyLibrary:
    """The functions of `libconvgpu-safety.so`."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.new = library.convgpu_claims_new
        self.new.argtypes, self.new.restype = [ctypes.c_uint32], ctypes.c_void_p
        self.delete = library.convgpu_claims_delete
        self.delete.argtypes, self.delete.restype = [ctypes.c_void_p], None
        self.put = library.convgpu_claims_put
        self.put.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p]
        self.can_end = library.convgpu_claims_can_end
        self.can_end.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_uint32,
            ctypes.c_int64,
        ]

    def make_table(self, devices: Iterable[str]) -> "NativeClaimTable":
        """Return an empty table for devices."""
        return NativeClaimTable(self, devices)


class NativeClaimTable:
    """See `convgpu.core.memory.claim_table.ClaimTable`.

    Holders are numbered; a number that has become free is the next holder's.

    Raises:
        MemoryError: there is none for the table, or for one more claim.
    """

    def __init__(self, library: SafetyLibrary, devices: Iterable[str]) -> None:
        self._library = library
        self._numbers = {device: number for number, device in enumerate(devices)}
        self._format = struct.Struct(f"{len(self._numbers)}q")
        self._nothing = [0] * len(self._numbers)
        self._slots: dict[str, int] = {}
        self._free_slots: list[int] = []
        self._table = library.new(len(self._numbers))
        if not self._table:
            raise MemoryError("no memory for the claims")
        weakref.finalize(self, library.delete, self._table)

    def put(self, container: str, claim: Claim | None) -> None:
        """See ClaimTable."""
        slot = self._slots.get(container)
        if claim is None:
            if slot is None:
                return
            granted = need = self._format.pack(*self._nothing)
        else:
            granted, need = self._pack(claim.granted), self._pack(claim.need)
        if slot is None:
            slot = self._free_slots.pop() if self._free_slots else len(self._slots)
            self._slots[container] = slot
        if not self._library.put(self._table, slot, granted, need):
            raise MemoryError("no memory for a claim")
        if claim is None:
            self._free_slots.append(self._slots.pop(container))

    def can_end(self, need: Sizes, device: str, size: int, free: Mapping[str, int]) -> bool:
        """See ClaimTable."""
        there = self._format.pack(*map(free.__getitem__, self._numbers))
        return bool(self._library.can_end(self._table, there, self._pack(need), self._numbers[device], size))

    def _pack(self, sizes: Sizes) -> bytes:
        numbers, packed = self._numbers, self._nothing.copy()
        for device, size in sizes:
            packed[numbers[device]] = size
        return self._format.pack(*packed)
