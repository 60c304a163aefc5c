"""The program `convgpu`. Nothing is collected while its modules are imported: most of it lives as long as we do."""

import gc
import os
import sys


def start() -> None:
    """Start the command line: usual `run`, `create`, `job` and `submit` by quick paths, all else by the whole command.

    `LazyGroup.get_command` collects again once the command is imported.
    """
    gc.disable()
    words = sys.argv[1:]
    if os.environ.get("CONVGPU_DOCKER_PLUGIN") == "1" and words[:1] == ["convgpu"]:  # `docker convgpu run ...`
        words = words[1:]
    if words[:1] in (["run"], ["create"]) and "_CONVGPU_COMPLETE" not in os.environ:
        from convgpu.cli.run.quick import run_quickly  # noqa: PLC0415 - only these two need it

        run_quickly(words[0], words[1:])
    elif words[:1] == ["job"] and "_CONVGPU_COMPLETE" not in os.environ:
        from convgpu.cli.cluster.job.quick import run_job_quickly  # noqa: PLC0415

        run_job_quickly(words[1:])
    elif words[:1] == ["submit"] and "_CONVGPU_COMPLETE" not in os.environ:
        from convgpu.cli.cluster.quick_submit import submit_quickly  # noqa: PLC0415

        submit_quickly(words[1:])
    from convgpu.cli.__main__ import start as begin  # noqa: PLC0415 - that is what is not collected

    begin()
