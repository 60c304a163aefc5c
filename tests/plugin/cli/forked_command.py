"""The command `convgpu` without its start: forked from a process that has imported all of its modules.

A start takes 0.3 to 0.5 s of a core, and tests on Engines type a hundred commands. Tests of the start itself run the
program: tests/plugin/cli/test_bad_input.py, tests/ways/test_docker_command.py, tests/release.
"""

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from preloaded import Template

from convgpu.cli.__main__ import COMMANDS

MODULES = sorted({place.partition(":")[0] for section in COMMANDS.values() for place, _ in section.values()})

LATER = (
    "convgpu.cli.connect.discovery",
    "convgpu.cli.connect.requests_http",
    "convgpu.cli.setup.runtime_setting",
    "convgpu.client.admin",
    "convgpu.client.scheduler",
    "docker",
    "msgspec",
    "ssl",
)
"""What commands import when they run."""


@functools.cache
def _template(network: str) -> Template:  # noqa: ARG001 - the key
    """Return the process that forks, one for each network namespace that this process has been in."""
    return Template("convgpu.cli.entry:start", *MODULES, *LATER)


def run_command(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run `convgpu WORDS...` with nothing on stdin; return what `subprocess.run` would, with its output.

    Raises:
        TimeoutExpired: it ran longer than `timeout` seconds, and was killed.
    """
    template = _template(str(Path("/proc/self/ns/net").readlink()))
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = template.start(words, stdout.fileno(), stderr.fileno(), cwd, env)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(["convgpu", *words], status, *texts)
