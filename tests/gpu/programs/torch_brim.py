"""Fills a container's limit through PyTorch, with kernels and libraries in use, until it refuses.

Reports, in bytes, what PyTorch has reserved. SIGUSR1 ends it.
"""

import json
import signal

import torch

MIB = 1 << 20


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    product = (square @ square).softmax(dim=0)
    kept = [product]
    for size in (1024 * MIB, 64 * MIB, 2 * MIB):
        while True:
            try:
                kept.append(torch.full((size,), 1, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                break
    torch.cuda.synchronize()
    print(json.dumps({"event": "full", "reserved": torch.cuda.memory_reserved()}), flush=True)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
