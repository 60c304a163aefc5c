"""Carry out a storm of kills; say who was killed at which step, and end with 1 at the first fault."""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from built import build_driver, build_hook, build_porter
from daemon import Daemon
from members import Host, PluginHost, running_host

from storm import VICTIMS, Kill, kills, list_steps, run_round


def describe(host: Host) -> None:
    """Print what is known of a host on which something went wrong."""
    for name, member in host.members.items():
        print(host.daemon.state(name), f"pid {member.program.pid}", f"has ended: {member.has_ended()}")
    print(host.daemon.admin.request("devices"), f"{host.copied()} bytes copied, killed {host.plan.killed}")
    lines = [line.partition(" cause=")[::2] for line in host.daemon.log.read_text().splitlines()]
    for (at, text), before in zip(lines[-400:], [("", ""), *lines[-400:]], strict=False):
        if text != before[1]:
            print(at[11:23], text)


def find_kills(host: Host, rounds: int, seed: int, victims: Sequence[str]) -> Iterator[Kill]:
    """Find the steps, then yield the kill of each round as it begins."""
    steps = list_steps(host)
    print(", ".join(f"{name}: {len(found)} steps" for name, found in steps.items()), flush=True)
    begin = time.monotonic()
    for number, kill in enumerate(islice(kills(steps, seed, victims), rounds), 1):
        print(f"{number} {time.monotonic() - begin:.1f} s {kill}", flush=True)
        yield kill


def carry_out(rounds: int, seed: int, kind: type[Daemon], victims: Sequence[str]) -> Counter[str]:
    """Carry out rounds; return how many of each victim were killed."""
    killed = Counter[str]()
    with TemporaryDirectory(prefix="cgs.") as folder, running_host(Path(folder), kind) as host:
        try:
            for kill in find_kills(host, rounds, seed, victims):
                killed[kill.victim] += run_round(host, kill)
        except AssertionError:
            describe(host)
            raise
        host.end()
    return killed


def main() -> None:
    """Run both kinds of hosts: nine of ten rounds with a scheduler, the others with a plugin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=1000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    given = parser.parse_args()
    for build in (build_driver, build_hook, build_porter):
        build()
    begin, of_plugin = time.monotonic(), given.rounds // 10
    killed = carry_out(given.rounds - of_plugin, given.seed, Daemon, VICTIMS)
    if of_plugin:
        killed["plugin"] = carry_out(of_plugin, given.seed, PluginHost, ["scheduler"]).total()
    seconds = time.monotonic() - begin
    print(f"{given.rounds} rounds in {seconds:.0f} s, {killed.total()} kills: {dict(killed)}; nothing was lost")


if __name__ == "__main__":
    main()
