"""Says what each lookup of the driver gives for each hooked call: the file and symbol behind the pointer.

`symbol_lookup.py SYMBOL:BASE...`. One JSON object on stdout: `dlsym`, a place per SYMBOL and per other form of its
BASE, and `cuGetProcAddress_v2`, a place per "BASE VERSION FLAGS". A place is [file, offset in it, name of the exported
symbol that starts there, or null]; null where the driver has nothing.
"""

import ctypes
import json
import sys

VERSIONS = (2000, 3020, 4000, 6000, 7000, 11000, 11030, 11040, 11070, 12000, 12050, 13000)
FLAGS = (0, 1, 2)  # default, legacy stream, per-thread default stream
SUFFIXES = ("", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz", "_ptds", "_v2_ptds")


class DlInfo(ctypes.Structure):
    """As dladdr fills it."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


libc = ctypes.CDLL(None)


def place(address: int | None) -> list[object] | None:
    """Return where a pointer points."""
    if not address:
        return None
    info = DlInfo()
    if not libc.dladdr(ctypes.c_void_p(address), ctypes.byref(info)):
        return [None, address, None]
    exact = info.symbol.decode() if info.symbol and info.address == address else None
    return [info.file.decode().rpartition("/")[2], address - info.base, exact]


def address_of(library: ctypes.CDLL, symbol: str) -> int | None:
    try:
        return ctypes.cast(library[symbol], ctypes.c_void_p).value
    except AttributeError:
        return None


def main() -> None:
    library = ctypes.CDLL("libcuda.so.1")
    pairs = [word.split(":") for word in sys.argv[1:]]
    find = library["cuGetProcAddress_v2"]
    asked = {}
    for base in dict.fromkeys(base for _symbol, base in pairs):
        for version in VERSIONS:
            for flags in FLAGS:
                pointer, status = ctypes.c_void_p(), ctypes.c_int()
                result = find(
                    base.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flags), ctypes.byref(status)
                )
                asked[f"{base} {version} {flags}"] = None if result else place(pointer.value)
    symbols = [symbol for symbol, _base in pairs] + [base + suffix for _symbol, base in pairs for suffix in SUFFIXES]
    found = {symbol: place(address_of(library, symbol)) for symbol in dict.fromkeys(symbols)}
    print(json.dumps({"dlsym": found, "cuGetProcAddress_v2": asked}))


if __name__ == "__main__":
    main()
