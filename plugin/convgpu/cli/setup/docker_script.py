"""What Docker finds as `docker-convgpu`: a script that answers for us, and starts us for everything else."""

import json
import os
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Final

METADATA: Final = "docker-cli-plugin-metadata"
MARK: Final = "# Made by `convgpu install docker`."
LINK: Final = "docker-convgpu"
ENVIRONMENT: Final = "CONVGPU_DOCKER_PLUGIN"
_SYSTEM: Final = Path("/usr/local/lib/docker/cli-plugins")


def metadata() -> dict[str, str]:
    """Return the metadata that Docker asks for."""
    return {
        "SchemaVersion": "0.1.0",
        "Vendor": "ConvGPU",
        "Version": version("convgpu"),
        "ShortDescription": "Share NVIDIA GPUs: memory limits, and a pause instead of out-of-memory",
    }


def script(program: str) -> str:
    """Return the program that Docker is to find in place of `program`.

    Docker asks every plugin for its metadata at each of its own `--help`. A shell answers that without an interpreter.
    """
    quoted = shlex.quote(program)
    return f"""#!/bin/sh
{MARK}
[ -x {quoted} ] || {{ echo {shlex.quote(program + ": not there any more; convgpu install docker")} >&2; exit 127; }}
if [ "$*" = {METADATA} ]; then
    echo {shlex.quote(json.dumps(metadata()))}
    exit 0
fi
{ENVIRONMENT}=1 exec {quoted} "$@"
"""


def plugins_folder(*, system: bool) -> Path:
    """Return where Docker looks for its command's plugins."""
    return _SYSTEM if system else Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"


def is_our_link(link: Path) -> bool:
    """Tell whether `install docker` made a file."""
    if link.is_symlink():  # as earlier versions made it
        return link.readlink().name == "convgpu"
    try:
        return MARK in link.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
