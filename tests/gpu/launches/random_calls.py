"""Random calls beside NVML at 1 kHz: nothing above the limit but what decision 101 names.

    tests/gpu/launches/run SECONDS        or, by itself, random_calls.py [--seconds=60] [--limit=4] [--seed=1] [--alone]

Two programs walk at random in one container (`random_program.py`), and start others. The exit status is 1 if the card
lost more than the limit for longer than a quarter of a second, or a program failed. Never more than 8 GiB are asked of
the card at a time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from memory import Card, Sampler
from rows import DEVICES, FOLDER, GIB, MIB, environment, running_daemon

TOLERATED = 96 * MIB
"""Of each process code, the first heap and buffer of printf, and queues of streams, before they are measured."""


def walk(folder: Path, seconds: int, seed: int, depth: int) -> list[dict[str, object]]:
    """Let two programs walk; return what they say, an empty dictionary of one that failed."""
    words, pipe = [sys.executable, str(FOLDER / "random_program.py"), str(seconds)], subprocess.PIPE
    with ExitStack() as programs:
        started = [
            programs.enter_context(
                subprocess.Popen(
                    [*words, str(seed + row), str(depth)], env=environment(folder), stdin=pipe, stdout=pipe, text=True
                )
            )
            for row in range(2)
        ]
        for program in started:
            programs.callback(program.kill)
        return talk(started, seconds)


def talk(programs: list["subprocess.Popen[str]"], seconds: int) -> list[dict[str, object]]:
    """Begin when all have a context, for the walk of one could refuse another its; return what they say."""
    ready = [program.stdout is not None and program.stdout.readline() == "ready\n" for program in programs]
    if not all(ready):
        return [{} for _program in programs]
    for program in programs:
        print("go", file=program.stdin, flush=True)
    said = [program.communicate(timeout=seconds + 120)[0] for program in programs]
    return [
        json.loads(line) if line and program.returncode == 0 else {}
        for line, program in zip(said, programs, strict=True)
    ]


def show(sampler: Sampler, said: list[dict[str, object]], limit: int) -> int:
    """Print what was seen; return how much of it is wrong."""
    failed = sum(not one for one in said)
    rate = sampler.above / max(1, sampler.samples)
    wrong = sampler.longest > 0.25
    calls = sum(int(str(one.get("calls", 0))) for one in said)
    print(
        f"{'WRONG' if wrong or failed else 'ok   '}  {calls} random calls, {sampler.samples} samples: most"
        f" {sampler.peak / GIB:.3f} of {limit / GIB:.3f} GiB; above it by more than {TOLERATED // MIB} MiB in"
        f" {rate:.2%}, for at most {sampler.longest:.3f} s, until {sampler.when:.1f} s; {failed} programs failed"
    )
    for one in said:
        print(f"       refused: {one.get('refused')}")
    return failed + wrong


def main() -> int:
    """Return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--limit", type=int, default=4, help="GiB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="start no programs, so that none is killed")
    options = parser.parse_args()
    limit = options.limit * GIB
    with tempfile.TemporaryDirectory() as scratch, running_daemon(Path(scratch) / "d", DEVICES) as daemon:
        card = Card(None if DEVICES == "nvml" else Path(scratch) / "d/driver")
        folder = daemon.container("walk", memory=str(limit))
        with Sampler(card, card.rest(), limit + TOLERATED) as sampler:
            said = walk(folder, options.seconds, options.seed, 0 if options.alone else 1)
    return 1 if show(sampler, said, limit) else 0


if __name__ == "__main__":
    sys.exit(main())
