"""Checks of calls that neither create nor start a container: `docker exec`, `docker cp`, builds. Pure."""

from collections.abc import Iterator, Sequence

from convgpu.authz.checks.hook import HOOK_VARIABLES, loads_hook, refuse_variable
from convgpu.authz.checks.preload import loads_by_file
from convgpu.authz.site.rules import Allowance
from convgpu.authz.subject.injection import RUNTIME
from convgpu.authz.subject.subject import Caller, Subject
from convgpu.authz.verdict import Refusal
from convgpu.protocol.layout import LIBRARY_FILE, PRELOAD_PATH
from convgpu.runtime.gpu_requests import is_plain
from convgpu.runtime.paths import normal, touches


def may_bypass_hook(rows: Sequence[str]) -> bool:
    """Tell whether `docker exec` changes a variable that can bypass a hook."""
    return any(row.partition("=")[0] in {"LD_PRELOAD", *HOOK_VARIABLES} for row in rows)


def exec_bypasses(subject: Subject, rows: Sequence[str], *, privileged: bool) -> Iterator[Refusal]:
    """Refuse `docker exec --privileged`, and variables by which a program would bypass the container's hook.

    Args:
        subject: the container.
        rows: `NAME=VALUE`, or `NAME` for a variable that is removed.
        privileged: the program is to be.
    """
    if privileged:
        yield Refusal("exec-privileged", "a privileged program can take any GPU of the host.\nLeave --privileged out.")
    yield from _exec_variables(subject, rows)


def _exec_variables(subject: Subject, rows: Sequence[str]) -> Iterator[Refusal]:
    folders = subject.hook_folders
    if not folders:
        return
    by_file = not subject.volumes or loads_by_file(subject)
    for row in rows:
        name, equals, value = row.partition("=")
        loaded = by_file or (bool(equals) and any(loads_hook(value, folder) for folder in folders))
        if name == "LD_PRELOAD" and not loaded:
            preload = f"{folders[0]}/{LIBRARY_FILE}"
            text = f"the hook must come first: leave LD_PRELOAD out, or type -e LD_PRELOAD={preload}:..."
            yield Refusal("hook-not-loaded", text)
        elif name in HOOK_VARIABLES:
            yield refuse_variable(name)


def archive_paths(subject: Subject, paths: Sequence[str]) -> Iterator[Refusal]:
    """Refuse archives that are unpacked over what the hook of a container needs."""
    if not subject.hook_folders:
        return
    protected = [*map(normal, subject.hook_folders), PRELOAD_PATH]
    for path in paths:
        # The Engine takes a relative path from the container's root.
        if touches(normal("/" + path), protected) is not None:
            text = f"what is copied to {path} could replace the hook.\nCopy it to another folder, such as /tmp."
            yield Refusal("archive-path", text)


def build_runtime(runtime: str, caller: Caller, *, classic: bool) -> Iterator[Refusal]:
    """Refuse builds where the Engine's default runtime gives GPUs; ours limits the containers of builds, too.

    The image that is built chooses that limit, and its priority, and nobody counts it, nor asks for a job: where rules
    are strict, a user with bounds has none such. BuildKit (`classic` is false) runs its steps by runc whatever is the
    default.
    """
    rules = caller.rules
    is_bounded = rules.allowance(caller.user) != Allowance() or rules.require == "slurm"
    if runtime == RUNTIME and classic and is_bounded and rules.strict_list is not None:
        yield Refusal(
            "build-gpu",
            "the steps of a classic build get the GPU memory limit that its Dockerfile names, whatever the rules.\n"
            "Build with BuildKit: DOCKER_BUILDKIT=1 docker build ...",
        )
    if not is_plain(runtime) and runtime != RUNTIME:
        yield Refusal(
            "build-gpu",
            f"the Engine's default runtime {runtime} gives every build the GPUs that its base image asks for.\n"
            'Set "default-runtime" back to runc, and give containers GPUs by --gpus.',
        )
