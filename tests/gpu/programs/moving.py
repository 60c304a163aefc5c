"""Computes before and after its memory has left the card and come back. Runs in a container.

    moving.py torch | torch-expandable | torch-async | torch-graph | triton | cupy | cupy-async | jax

Reports a digest of what it holds and computes; after SIGUSR1 the same again, and whether new memory works. The digests
are equal if no byte was lost.
"""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable

GIB = 1 << 30
BLOCKS = 8  # of 512 MiB
ELEMENTS = 1 << 27
SIDE = 4096
PYTORCH = {
    "torch": "",
    "torch-graph": "",
    "torch-expandable": "expandable_segments:True",
    "torch-async": "backend:cudaMallocAsync",
}


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def with_torch(name: str) -> Callable[[], str]:
    """PyTorch: its allocator, cuBLAS with a workspace, and a graph that was captured before."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = PYTORCH[name]
    import torch  # noqa: PLC0415 - after its settings are made

    torch.manual_seed(7)
    blocks = [torch.randint(1 << 30, (ELEMENTS,), dtype=torch.int32, device="cuda") for _ in range(BLOCKS)]
    matrix = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device="cuda")
    product = torch.empty_like(matrix)
    torch.matmul(matrix, matrix, out=product)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph() if name == "torch-graph" else None
    if graph is not None:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.matmul(matrix, matrix, out=product)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            torch.matmul(matrix, matrix, out=product)

    def compute() -> str:
        product.zero_()
        if graph is None:
            torch.matmul(matrix, matrix, out=product)
        else:
            graph.replay()
        more = torch.ones(ELEMENTS, dtype=torch.int32, device="cuda")
        sums = [int(block.sum(dtype=torch.int64)) for block in blocks]
        return digest(repr([*sums, int(more.sum())]).encode(), product.view(torch.int16).cpu().numpy().tobytes())

    return compute


def with_triton() -> Callable[[], str]:
    from triton_blocks import allocate  # noqa: PLC0415 - not every framework is imported

    blocks = [allocate(4 * ELEMENTS) for _ in range(BLOCKS)]
    return lambda: digest(
        *(block.view(-1)[:: 1 << 12].cpu().numpy().tobytes() for block in blocks), bytes(allocate(ELEMENTS).cpu()[:9])
    )


def with_cupy(name: str) -> Callable[[], str]:
    import cupy  # noqa: PLC0415 - not every framework is imported

    if name == "cupy-async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    blocks = [cupy.arange(ELEMENTS, dtype=cupy.int32) * (index + 3) for index in range(BLOCKS)]
    matrix = cupy.arange(SIDE * SIDE, dtype=cupy.float32).reshape(SIDE, SIDE) % 13

    def compute() -> str:
        sums = [int(block.astype(cupy.int64).sum()) for block in blocks]
        return digest(repr(sums).encode(), cupy.asnumpy(matrix @ matrix).tobytes())

    return compute


def with_jax() -> Callable[[], str]:
    os.environ |= {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5",
        "TF_CPP_MIN_LOG_LEVEL": "4",
    }
    import jax  # noqa: PLC0415 - after its settings are made

    numpy = jax.numpy
    blocks = [numpy.arange(ELEMENTS, dtype="int32") * (index + 3) for index in range(BLOCKS)]
    matrix = (numpy.arange(SIDE * SIDE, dtype="float32") % 13).reshape(SIDE, SIDE)
    multiply = jax.jit(lambda one: one @ one)

    def compute() -> str:
        sums = [int(numpy.bitwise_xor.reduce(block)) for block in blocks]
        return digest(repr(sums).encode(), bytes(jax.device_get(multiply(matrix)).tobytes()))

    return compute


def program(name: str) -> Callable[[], str]:
    if name in PYTORCH:
        return with_torch(name)
    if name == "triton":
        return with_triton()
    return with_jax() if name == "jax" else with_cupy(name)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    compute = program(sys.argv[1])
    before = compute()
    print(json.dumps({"event": "ready", "digest": before}), flush=True)
    while True:
        signal.sigwait({signal.SIGUSR1})
        after = compute()
        print(json.dumps({"event": "again", "digest": after, "equal": after == before}), flush=True)


if __name__ == "__main__":
    main()
