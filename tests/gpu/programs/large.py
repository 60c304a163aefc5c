"""Takes one large block through PyTorch, writes all of it, holds it, ends. Runs in a container.

`large.py BYTES`. Reports when the allocation returned (Unix seconds) or what refused it. SIGUSR1 ends it.
"""

import json
import signal
import sys
import time

import torch


def report(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    torch.zeros(1, device="cuda")  # the context
    report("asking")
    try:
        block = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        report("refused", text=str(error)[:200])
        sys.exit(1)
    returned = time.time()
    block.fill_(1)
    torch.cuda.synchronize()
    report("holding", returned=returned)
    signal.sigwait({signal.SIGUSR1})


if __name__ == "__main__":
    main()
