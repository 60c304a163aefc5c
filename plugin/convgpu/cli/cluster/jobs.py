"""`convgpu jobs`, `logs` and `cancel`: Slurm's jobs as users of ConvGPU see them."""

import os
import pwd
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from convgpu.cli.cluster import slurm_client, slurm_jobs
from convgpu.cli.terminal.errors import Refused
from convgpu.cli.terminal.options import as_json as json_option
from convgpu.cli.terminal.output import Column, echo, echo_data, print_table
from convgpu.cluster.listing import Job, reason_in_words
from convgpu.cluster.request import clock_time
from convgpu.protocol.sizes import format_size

_COLUMNS: Final = (
    Column("JOB", right=True),
    Column("NAME", shrinks=True),
    Column("USER", optional=True),
    Column("STATE"),
    Column("GPUS", right=True),
    Column("MEMORY", right=True),
    Column("NETWORK", right=True, sparse=True),
    Column("NODES"),
    Column("TIME", right=True),
    Column("WHY", shrinks=True, optional=True),
)
_POLL: Final = 0.3  # seconds between two readings of a log that grows
_ASK: Final = 2.0  # seconds between two questions whether the job has ended


def _elapsed(job: Job, now: float) -> str:
    started, ended = job.start_time.get(), job.end_time.get()
    if not started or started > now:
        return ""
    return clock_time((ended if ended and job.ended else now) - started)


Traffic = tuple[int, int]  # bytes received and sent


def _record(job: Job, granule: int, traffic: Traffic | None) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "name": job.name,
        "user": job.user_name,
        "state": job.state,
        "gpus": job.cards,
        "memory": job.shards * granule if job.shards else None,
        "network": job.network * 10**9 or None,
        "network_received": traffic[0] if traffic else None,
        "network_sent": traffic[1] if traffic else None,
        "nodes": job.nodes,
        "node_count": int(job.node_count.number),
        "restarts": job.restart_cnt,
        "start": job.start_time.get(),
        "why": reason_in_words(job),
        "output": job.standard_output,
    }


def _row(job: Job, granule: int, traffic: Traffic | None, now: float) -> list[str]:
    memory = format_size(job.shards * granule) if job.shards else "whole" if job.cards else ""
    nodes = job.nodes or f"({int(job.node_count.number)})"
    again = f" ({job.restart_cnt + 1}. run)" if job.restart_cnt else ""
    user, cards = job.user_name, str(job.cards or "")
    network = f"{job.network}gbit" if job.network else ""
    seen = f"{format_size(traffic[0])} received, {format_size(traffic[1])} sent" if traffic else ""
    why = "; ".join(text for text in (reason_in_words(job), seen) if text)
    return [str(job.job_id), job.name, user, job.state + again, cards, memory, network, nodes, _elapsed(job, now), why]


@click.command()
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Ended ones too, as long as Slurm remembers them.")
@click.option("--mine", is_flag=True, help="Only your own.")
@click.option("--watch", is_flag=True, help="Again and again, until the named jobs have ended, or Ctrl-C.")
@json_option
def jobs(numbers: tuple[int, ...], *, everything: bool, mine: bool, watch: bool, as_json: bool) -> None:
    """List the jobs of the cluster: what they have, and why they wait."""
    if watch and as_json:
        raise click.UsageError("--watch is for people: type --json again and again, or read squeue --json --iterate=2")
    words = ["--states=all"] if everything else []
    words += [f"--user={pwd.getpwuid(os.getuid()).pw_name}"] if mine else []
    granule = slurm_client.granule()
    while True:
        found = [slurm_jobs.job(number) for number in numbers] if numbers else slurm_jobs.jobs(*words)
        found = slurm_jobs.explained([job for job in found if everything or numbers or not job.ended])
        seen = slurm_jobs.traffic(found)
        if as_json:
            echo_data({"jobs": [_record(job, granule, seen.get(job.job_id)) for job in found]})
            return
        if watch:
            click.clear()  # only where a terminal is
        listed, now = sorted(found, key=lambda job: job.job_id), time.time()
        print_table(_COLUMNS, [_row(job, granule, seen.get(job.job_id), now) for job in listed])
        if not watch or (numbers and all(job.ended for job in found)):
            return
        time.sleep(_ASK)


@click.command()
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(1), metavar="ID...")
def cancel(numbers: tuple[int, ...]) -> None:
    """End jobs: SIGTERM, and after Slurm's KillWait SIGKILL. Their containers end with them."""
    for number in numbers:
        job = slurm_jobs.job(number)
        if job.ended:
            raise Refused(f"job {number} has ended already ({job.state}).\nSee: convgpu logs {number}")
        try:
            slurm_client.call("scancel", str(number))
        except Refused as error:
            if "permission denied" not in error.message:
                raise
            raise Refused(f"job {number} is that of {job.user_name}: ask its user, or an operator of Slurm") from error
        echo(f"job {number}: cancelled")


@click.command()
@click.argument("number", type=click.IntRange(1), metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
def logs(number: int, *, follow: bool) -> None:
    """Print what a job printed."""
    job = slurm_jobs.job(number)
    path = Path(job.standard_output)
    if not path.exists() and not follow:
        why = f" ({reason_in_words(job)})" if job.state == "pending" and reason_in_words(job) else ""
        raise Refused(f"job {number} has printed nothing yet: it is {job.state}{why}.\nType: convgpu logs -f {number}")
    if not follow:
        with path.open("rb") as file:
            _copy(file)
        return
    _follow(path, lambda: slurm_jobs.job(number).ended)


def _copy(file: BinaryIO) -> None:
    while chunk := file.read(1 << 16):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _follow(path: Path, has_ended: Callable[[], bool]) -> None:
    """Print a file as it grows, also where it appears later, until the job has ended."""
    position, asked, ended = 0, 0.0, False
    while True:
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                _copy(file)
                position = file.tell()
        if ended:
            return
        if time.monotonic() - asked >= _ASK:
            ended, asked = has_ended(), time.monotonic()
        if not ended:
            time.sleep(_POLL)
