"""A job of several processes on one card: trains in step (DistributedDataParallel over gloo), then all fill the limit.

`torch_processes.py PROCESSES`. Reports, in bytes, what all of them could have together in blocks of 256 MiB, how many
were refused with PyTorch's out-of-memory error, and the losses' last value of each. SIGUSR1 ends it.
"""

import json
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BLOCK = 256 << 20
STEPS = 5


def train() -> float:
    """Return the loss after a few steps; the same in each process, as they average their gradients."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        loss = model(torch.ones(64, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def work(rank: int, processes: int, answers: "mp.SimpleQueue", ended: object) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    loss = train()
    dist.barrier()
    kept, refused = [], False
    while not refused:
        try:
            kept.append(torch.full((BLOCK,), 1, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            refused = True
    answers.put({"taken": len(kept) * BLOCK, "refused": refused, "loss": loss})
    ended.wait()


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    processes = int(sys.argv[1])
    context = mp.get_context("spawn")
    answers, ended = context.SimpleQueue(), context.Event()
    workers = mp.spawn(work, (processes, answers, ended), nprocs=processes, join=False)
    rows = [answers.get() for _ in range(processes)]
    report = {
        "event": "full",
        "taken": sum(row["taken"] for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "losses": [row["loss"] for row in rows],
    }
    print(json.dumps(report), flush=True)
    signal.sigwait({signal.SIGUSR1})
    ended.set()
    workers.join()


if __name__ == "__main__":
    main()
