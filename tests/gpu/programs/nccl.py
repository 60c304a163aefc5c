"""Adds numbers up over all devices with NCCL, a process for each device. Runs in a container; reports the sums.

`nccl.py [BLOCKS]`: each process holds so many GiB beside, compares them after SIGUSR1, and adds up once more ("again").
"""

import json
import os
import signal
import sys
from multiprocessing.synchronize import Event

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

GIB = 1 << 30


def add_up(rank: int) -> float:
    numbers = torch.full((1 << 26,), rank + 1.0, device="cuda")
    dist.all_reduce(numbers)
    return float(numbers[-1])


def work(rank: int, processes: int, blocks: int, answers: "mp.SimpleQueue", goes_on: Event) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=processes)
    held = [torch.full((GIB,), number + 1, dtype=torch.uint8, device="cuda") for number in range(blocks)]
    answers.put((rank, add_up(rank), True))
    if held:
        goes_on.wait()
        right = all(bool((block == number + 1).all()) for number, block in enumerate(held))
        answers.put((rank, add_up(rank), right))
    dist.destroy_process_group()


def report(event: str, processes: int, answers: "mp.SimpleQueue") -> None:
    rows = sorted(answers.get() for _ in range(processes))
    sums, right = [row[1] for row in rows], all(row[2] for row in rows)
    print(json.dumps({"event": event, "sums": sums, "right": right}), flush=True)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    processes, blocks = torch.cuda.device_count(), int(sys.argv[1]) if len(sys.argv) > 1 else 0
    context = mp.get_context("spawn")
    answers, goes_on = context.SimpleQueue(), context.Event()
    workers = mp.spawn(work, (processes, blocks, answers, goes_on), nprocs=processes, join=False)
    report("sums", processes, answers)
    if blocks:
        signal.sigwait({signal.SIGUSR1})
        goes_on.set()
        report("again", processes, answers)
    workers.join()


if __name__ == "__main__":
    main()
