"""Takes so many bytes by decoders of video (NVDEC), in a process that has a CUDA context behind the hook; stays.

    nvdec.py BYTES

Exit status 77 without libnvcuvid, or where the card decodes no such video. Cards for computing have decoders and no
encoder (NVENC). The structure is that of cuviddec.h of NVIDIA's Video Codec SDK 12.
"""

import ctypes
import sys
from ctypes import byref, c_int, c_short, c_ulong, c_void_p

from calls import Cuda

ABSENT = 77
H264, YUV420, NV12, SURFACES = 4, 1, 0, 32
WIDTH = HEIGHT = 4096


class Rectangle(ctypes.Structure):
    """Part of a picture, in pixels."""

    _fields_ = (("left", c_short), ("top", c_short), ("right", c_short), ("bottom", c_short))


class Decoder(ctypes.Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = (
        *((name, c_ulong) for name in ("width", "height", "surfaces")),
        *((name, c_int) for name in ("codec", "chroma")),
        *((name, c_ulong) for name in ("flags", "depth", "intra", "most_width", "most_height", "reserved")),
        ("shown", Rectangle),
        *((name, c_int) for name in ("format", "deinterlaced")),
        *((name, c_ulong) for name in ("target_width", "target_height", "output_surfaces")),
        ("lock", c_void_p),
        ("target", Rectangle),
        ("histogram", c_ulong),
        ("reserved_too", c_ulong * 4),
    )


def main(size: int) -> None:
    """Make decoders until their surfaces are so many bytes."""
    cuda = Cuda()
    try:
        video = ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        sys.exit(ABSENT)
    wanted = Decoder(width=WIDTH, height=HEIGHT, surfaces=SURFACES, codec=H264, chroma=YUV420, format=NV12)
    wanted.most_width, wanted.most_height = WIDTH, HEIGHT
    wanted.target_width, wanted.target_height, wanted.output_surfaces = WIDTH, HEIGHT, 4
    wanted.shown = wanted.target = Rectangle(0, 0, WIDTH, HEIGHT)
    each = (SURFACES + 4) * WIDTH * HEIGHT * 3 // 2
    for _decoder in range(-(-size // each)):
        made = c_void_p()
        status = video.cuvidCreateDecoder(byref(made), byref(wanted))
        if status != 0:
            print(f"cuvidCreateDecoder: {status}", file=sys.stderr)
            sys.exit(ABSENT)
    print(f"{-(-size // each)} decoders of {SURFACES} pictures", flush=True)
    sys.stdin.read()
    del cuda


if __name__ == "__main__":
    main(int(sys.argv[1]))
