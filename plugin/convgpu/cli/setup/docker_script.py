"""What Docker finds as `docker-convgpu`: a script that answers for us, and starts us for everything else."""

import json
import shlex
from importlib.metadata import version
from typing import Final

METADATA: Final = "docker-cli-plugin-metadata"
MARK: Final = "# Made by `convgpu install docker`."
ENVIRONMENT: Final = "CONVGPU_DOCKER_PLUGIN"


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
