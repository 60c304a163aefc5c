"""Blocks of PyTorch's that a kernel compiled by Triton fills."""

import torch
import triton
import triton.language as tl

WIDTH = 1024
VALUE = 7


@triton.jit
def fill(block, value: tl.constexpr, width: tl.constexpr):
    place = tl.program_id(0) * width + tl.arange(0, width)
    tl.store(block + place, value)


def allocate(size: int) -> torch.Tensor:
    """Return a block that a kernel has filled.

    Raises:
        torch.OutOfMemoryError: there is no room for it.
    """
    block = torch.empty(size, dtype=torch.uint8, device="cuda")
    fill[(size // WIDTH,)](block, VALUE, WIDTH)
    if int(block[-1]) != VALUE:
        raise ValueError("the kernel did not fill its block")
    return block
