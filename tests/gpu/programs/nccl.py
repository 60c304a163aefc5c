"""Adds numbers up over all devices with NCCL, a process for each device. Runs in a container; reports the sums."""

import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank: int, processes: int, answers: "mp.SimpleQueue") -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=processes)
    numbers = torch.full((1 << 26,), rank + 1.0, device="cuda")
    dist.all_reduce(numbers)
    answers.put((rank, float(numbers[-1])))
    dist.destroy_process_group()


def main() -> None:
    processes = torch.cuda.device_count()
    context = mp.get_context("spawn")
    answers = context.SimpleQueue()
    workers = mp.spawn(work, (processes, answers), nprocs=processes, join=False)
    sums = dict(answers.get() for _ in range(processes))
    workers.join()
    print(json.dumps({"event": "sums", "sums": list(sums.values())}), flush=True)


if __name__ == "__main__":
    main()
