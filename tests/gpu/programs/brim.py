"""Fills a container's limit by the driver until it refuses. Runs in a container.

Reports, in bytes: memory free and total before any allocation, what could be allocated in blocks of 64 and then 2 MiB,
and free memory afterwards. SIGUSR1 ends it.
"""

import json
import signal

from driver import MIB, OUT_OF_MEMORY, CudaError, Driver


def fill(driver: Driver, size: int) -> int:
    """Allocate blocks of a size until refused; return the bytes."""
    taken = 0
    while True:
        try:
            driver.allocate(size)
        except CudaError as error:
            if error.result != OUT_OF_MEMORY:
                raise
            return taken
        taken += size


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    driver = Driver()
    initialise, context = driver.initialise()
    free, total = driver.memory()
    print(json.dumps({"event": "context", "cuInit": initialise, "context": context}), flush=True)
    signal.sigwait({signal.SIGUSR1})
    taken = sum(fill(driver, size) for size in (64 * MIB, 2 * MIB))
    left, _total = driver.memory()
    print(json.dumps({"event": "full", "free": free, "total": total, "taken": taken, "left": left}), flush=True)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
