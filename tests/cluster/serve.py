"""Runs the cluster of four nodes until a signal ends it: `serve.py FOLDER`, for scripts/slurm.

FOLDER/enter, which is there when all nodes are idle, runs a command as on the cluster's login node.
"""

import shlex
import signal
import sys
from pathlib import Path

from docker_engine import running_engine
from four_nodes import FourNodes, enabled_plugin, running_cluster
from host_state import leave_hosts_network
from prepared_data import prepared_data


def enter_script(cluster: FourNodes) -> str:
    """Return a script that runs its arguments in the namespaces, with the cluster's variables."""
    *namespaces, _end = cluster.command()
    enter = shlex.join([*namespaces, "--net", "--", "env", "-i"])
    variables = shlex.join(f"{name}={value}" for name, value in cluster.environment.items())
    return f'#!/bin/sh\nexec {enter} -C "$PWD" {variables} TERM="${{TERM:-dumb}}" "$@"\n'


def main() -> None:
    """Start, say so, wait, and end."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    folder = Path(sys.argv[1])
    for number in signals:
        signal.signal(number, lambda *_: sys.exit(0))
    leave_hosts_network()
    with running_engine(data=prepared_data()) as engine, enabled_plugin(engine), running_cluster(engine) as cluster:
        new = folder / "enter.new"
        new.write_text(enter_script(cluster))
        new.chmod(0o700)
        new.rename(folder / "enter")
        cluster.process.wait()


if __name__ == "__main__":
    main()
