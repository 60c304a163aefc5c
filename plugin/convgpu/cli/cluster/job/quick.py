"""The quick path of `convgpu job`: a usual line, without click (decision 144).

Whatever is unusual raises some error and leaves the line to the whole command, which has the words for it. Until docker
takes this process's place nothing is changed but that ended containers of the job are gone, so that the line can be
read again.
"""

from __future__ import annotations

import os
import sys

from convgpu.cli.cluster.job import container
from convgpu.cli.cluster.quick_command import QuickCommand, UnusualError
from convgpu.cli.cluster.submission import PYXIS, settings_file
from convgpu.cli.connect.engine_documents import quoted
from convgpu.cli.connect.engine_endpoint import Options, resolve
from convgpu.cli.connect.quick_http import QuickHttp
from convgpu.cli.run.docker_arguments import check, scan
from convgpu.cli.run.preparation import prepare
from convgpu.cli.run.quick import INFO, QuickEngine, abort, become
from convgpu.cluster.layout import file_name
from convgpu.cluster.node_job import read_node_job
from convgpu.protocol.quick import quick_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from convgpu.cli.run.docker_arguments import CommandLine
    from convgpu.cluster.node_job import NodeJob

_PULL_ONLY: Final = ("--pull-only",)
_REMOVED: Final = frozenset({204, 404})  # the Engine's answers where a container is gone


def run_job_quickly(words: Sequence[str]) -> None:
    """Let docker take the place of this process; return where the whole command has to do it.

    Args:
        words: behind `job`.
    """
    try:
        command = docker_command(words)
        if command:
            become(command)
    except KeyboardInterrupt:
        abort()
    except Exception:
        return
    sys.exit(0)


def docker_command(words: Sequence[str]) -> list[str]:
    """Return the docker command of a usual line; nothing where only the image had to be there.

    Raises:
        Exception: the line, the job, the Engine or the plugin is not usual.
    """
    line = scan(words, {**container.OWN, **dict.fromkeys(PYXIS, True)})
    check(line)
    if line.own not in {(), _PULL_ONLY} or container.is_detached(line):
        raise UnusualError(line.own)
    settings = quick_json.loads(_read(settings_file()))
    share = _share(settings["jobs"])
    endpoint = resolve(Options(host=settings["engine"]), os.environ)
    if endpoint.path is None:
        raise UnusualError(endpoint.host)
    ended = f"/containers/json?all=1&filters={quoted(quick_json.dumps(container.ended(share)))}"
    engine = QuickEngine(endpoint, settings["plugin"], line.image[0], INFO, ended)
    try:
        engine.image(line.image[0])
        if line.own == _PULL_ONLY:
            return []
        command = _prepared(line, share, settings["plugin"], engine)
        _remove(endpoint.path, [row["Id"] for row in engine.get(ended)])
        return command
    finally:
        engine.close()


def _prepared(line: CommandLine, share: NodeJob, plugin: str, engine: QuickEngine) -> list[str]:
    ours = container.our_words(line, share, engine.info, _addresses)
    return prepare(container.with_words(line, ours), container.request(share, plugin), engine, probe=False)[0]


def _share(folder: str) -> NodeJob:
    """Return what the job has of this node.

    Raises:
        Exception: it is not this user's, or may start nothing here, or nothing without a look at the network.
    """
    number, node = os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"]
    share = read_node_job(_read(f"{folder}/{file_name(int(number), node)}"))
    if os.getuid() not in {0, share.user} or share.fault or share.network or not share.cards:
        raise UnusualError(share)
    return share


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - `pathlib` takes longer than all else here
        return file.read()


def _addresses(nodes: str) -> list[str]:
    asked = [QuickCommand(*command) for command in container.address_questions(nodes)]
    return container.read_addresses(*(command.finish() for command in asked))


def _remove(engine: str, containers: Sequence[str]) -> None:
    """Remove containers with their anonymous volumes; absent ones are no error."""
    http = QuickHttp(engine)
    for name in containers:
        answer = http.ask("DELETE", f"/containers/{quoted(name)}?force=true&v=true")
        if answer.status not in _REMOVED:
            raise UnusualError(name, answer.status)
