"""Fills a container's limit through one allocator of a framework, until it refuses. Runs in a container.

    frameworks.py torch | torch-expandable | torch-async | triton | cupy | cupy-async | jax

Reports, in bytes, what could be had in blocks of 256 MiB, and the name of the exception that refused; then whether a
smaller allocation works again after everything was freed. SIGUSR1 ends it.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Callable

BLOCK = 256 << 20
PYTORCH = {"torch": "", "torch-expandable": "expandable_segments:True", "torch-async": "backend:cudaMallocAsync"}


def allocator(name: str) -> Callable[[], object]:
    """Return what allocates one block; the framework is imported here, after its settings are made."""
    if name in PYTORCH:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = PYTORCH[name]
        import torch  # noqa: PLC0415 - after its settings are made

        return lambda: torch.full((BLOCK,), 1, dtype=torch.uint8, device="cuda")
    if name == "triton":
        from triton_blocks import allocate  # noqa: PLC0415 - not every framework is imported

        return lambda: allocate(BLOCK)
    if name == "jax":
        os.environ |= {
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "1.0",
            "TF_CPP_MIN_LOG_LEVEL": "4",
        }
        import jax  # noqa: PLC0415 - after its settings are made

        return lambda: jax.block_until_ready(jax.device_put(jax.numpy.ones((BLOCK,), dtype="uint8")))
    import cupy  # noqa: PLC0415 - after its settings are made

    if name == "cupy-async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    return lambda: cupy.ones((BLOCK,), dtype=cupy.uint8)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    allocate = allocator(sys.argv[1])
    kept, refused, text = [], "", ""
    while not refused:
        try:
            kept.append(allocate())
        except Exception as error:  # whatever the framework makes of it: the test judges
            refused, text = type(error).__name__, str(error)[:200]
    report = {"event": "full", "taken": len(kept) * BLOCK, "refused": refused, "text": text}
    print(json.dumps(report), flush=True)
    signal.sigwait({signal.SIGUSR1})
    del kept
    gc.collect()
    again = allocate()
    print(json.dumps({"event": "again", "works": again is not None}), flush=True)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
