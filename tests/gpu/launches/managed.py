"""Takes so many bytes of managed memory past the hook, beside a CUDA context behind it; stays until it is ended.

    managed.py BYTES

To be started in a PID namespace of its own, by which the scheduler knows whose process it is.
"""

import os
import subprocess
import sys
from ctypes import byref, c_size_t, c_uint64

from calls import Cuda

ATTACH_GLOBAL = 1


def main(size: int) -> int:
    """Return 1 if the driver refused it."""
    cuda = Cuda()
    if os.environ.pop("LD_PRELOAD", None):
        return subprocess.run([sys.executable, __file__, str(size)], check=False).returncode
    address = c_uint64()
    cuda.must("cuMemAllocManaged", byref(address), c_size_t(size), ATTACH_GLOBAL)
    cuda.must("cuMemsetD8_v2", address, 1, c_size_t(size))
    cuda.must("cuCtxSynchronize")
    print("past the hook", flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
