"""Takes device memory in blocks, proves that it is its own, holds it, ends. Runs in a container.

`hold.py torch|driver BLOCKS BLOCK_SIZE [TOO_MUCH]`: sizes in bytes; TOO_MUCH is tried first and has to be refused.
SIGUSR1 makes it check its memory and end, SIGUSR2 check it and free it. One JSON object a line on stdout.
"""

import json
import signal
import sys
import time

import driver


def report(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "time": time.time(), **fields}), flush=True)


class TorchBlocks:
    """Through PyTorch's own allocator."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - not there in a rehearsal

        self.torch = torch
        self.blocks: list[torch.Tensor] = []

    def memory(self) -> tuple[int, int]:
        return self.torch.cuda.mem_get_info(0)

    def take(self, size: int) -> None:
        """Allocate and fill the whole block with its number."""
        block = self.torch.empty(size, dtype=self.torch.uint8, device="cuda:0")
        block.fill_(len(self.blocks) + 1)
        self.torch.cuda.synchronize()
        self.blocks.append(block)

    def check(self) -> bool:
        """Does every byte of every block still hold the block's number?"""
        wanted = [(number + 1) * 0x0101010101010101 for number in range(len(self.blocks))]
        seen = [self.torch.aminmax(block.view(self.torch.int64)) for block in self.blocks]
        return all(int(pair.min) == int(pair.max) == value for pair, value in zip(seen, wanted, strict=True))

    def free(self) -> None:
        self.blocks.clear()
        self.torch.cuda.empty_cache()

    def refusal(self, size: int) -> str | None:
        """Return the name of the error that refuses so much, None if nothing does."""
        try:
            self.torch.empty(size, dtype=self.torch.uint8, device="cuda:0")
        except self.torch.OutOfMemoryError as error:
            return type(error).__name__
        return None


class DriverBlocks:
    """Through the driver; used in rehearsals, where there is no PyTorch."""

    def __init__(self) -> None:
        self.driver = driver.Driver()
        self.driver.initialise()
        self.blocks: list[int] = []

    def memory(self) -> tuple[int, int]:
        return self.driver.memory()

    def take(self, size: int) -> None:
        self.blocks.append(self.driver.allocate(size))

    def check(self) -> None:
        """Simulated memory has no content."""

    def free(self) -> None:
        for address in self.blocks:
            self.driver.free(address)
        self.blocks.clear()

    def refusal(self, size: int) -> str | None:
        """Return the name of the error that refuses so much, None if nothing does."""
        try:
            self.driver.allocate(size)
        except driver.CudaError as error:
            return "OutOfMemoryError" if error.result == driver.OUT_OF_MEMORY else str(error)
        return None


def main() -> None:
    # Blocked before any thread starts, so that a signal waits for us, whenever it comes.
    signals = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    through, count, size, *too_much = sys.argv[1:]
    blocks = TorchBlocks() if through == "torch" else DriverBlocks()
    free, total = blocks.memory()
    report("memory", free=free, total=total)
    for amount in map(int, too_much):
        start = time.monotonic()
        error = blocks.refusal(amount)
        report("refused", error=error, size=amount, seconds=time.monotonic() - start)
    slowest = 0.0
    for _ in range(int(count)):
        start = time.monotonic()
        blocks.take(int(size))
        slowest = max(slowest, time.monotonic() - start)
    report("holding", blocks=int(count), slowest=slowest)
    while (number := signal.sigwait(signals)) == signal.SIGUSR2:
        right = blocks.check()
        blocks.free()
        report("freed", right=right)
    report("end", right=blocks.check(), signal=number)


if __name__ == "__main__":
    main()
