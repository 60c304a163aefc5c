"""`convgpu-runtime`: wraps an OCI runtime, and is the OCI hook of containers whose limit the runtime or CDI injects.

As a runtime, `convgpu-runtime [--convgpu-OPTION=VALUE...] ARGUMENT...` edits the bundle of a `create` that gets a GPU
or has CONVGPU_MEMORY, and then executes the real runtime with its arguments. Options: `--convgpu-memory` (limit of a
container that names none), `--convgpu-runtime` (the real one; default runc), `--convgpu-directory` (the scheduler's),
`--convgpu-rules` (of the site; default /etc/convgpu/rules.toml). At `start` a container with CONVGPU_NETWORK is held to
that bandwidth, and at `delete` is noted what it sent.
As a hook, `convgpu-runtime hook begin|end`, with the container's state on stdin.

Each call of each container's runtime starts this program, so modules that only a `create` or a hook needs are imported
there.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from convgpu.runtime.edits import Host
    from convgpu.runtime.strict.judgement import StrictRules
    from convgpu.runtime.strict.start import OpenSource

_PREFIX: Final = "--convgpu-"
_OPTIONS: Final = ("memory", "runtime", "directory", "rules")
_RULES: Final = "/etc/convgpu/rules.toml"
_ENGINE_ROOT: Final = "/var/lib/docker"
_PLUGINS: Final = "plugins.moby"  # moby, daemon/config/config.go
_CREATES: Final = ("create", "run")
_STEPS: Final = ("start", "delete")
_NETWORK: Final = "CONVGPU_NETWORK="
_NOTES: Final = "/run/convgpu/networks"


def main() -> None:
    """Run as a runtime or as a hook; a failure is one line, where the Engine shows it."""
    own, rest = split(sys.argv[1:])
    try:
        if rest[:1] == ["hook"]:
            _hook(own, rest[1:])
        else:
            _run(own, rest)
    except Exception as error:
        _fail(rest, f"{type(error).__name__}: {error}" if not str(error) else str(error))


def split(arguments: "Sequence[str]") -> tuple[dict[str, str], list[str]]:
    """Return our options, which stand before or after `hook`, and the other arguments."""
    own: dict[str, str] = {}
    rest = []
    for argument in arguments:
        name, _, value = argument.removeprefix(_PREFIX).partition("=")
        if argument.startswith(_PREFIX) and name in _OPTIONS:
            own[name] = value
        else:
            rest.append(argument)
    return own, rest


def bundle_of(arguments: "Sequence[str]") -> str | None:
    """Return the bundle of the container that these arguments of an OCI runtime create; None if they create none."""
    create = next((index for index, argument in enumerate(arguments) if argument in _CREATES), None)
    if create is None:
        return None
    following = list(arguments[create + 1 :])
    for index, argument in enumerate(following):
        if argument in {"--bundle", "-b"} and index + 1 < len(following):
            return following[index + 1]
        if argument.startswith("--bundle="):
            return argument.removeprefix("--bundle=")
    return os.getcwd()  # noqa: PTH109 - pathlib is not imported


def is_plugin(arguments: "Sequence[str]") -> bool:
    """Tell whether a managed plugin of the Engine starts, which gives its plugins the default runtime.

    They have a namespace of containerd for themselves, by which the directory of their states is called. Who may
    install one is root of the host, and an Engine whose volumes have a driver that does not start ends in a panic.
    """
    root = next((index for index, argument in enumerate(arguments[:-1]) if argument == "--root"), None)
    return root is not None and arguments[root + 1].rsplit("/", 1)[-1] == _PLUGINS


def _run(own: dict[str, str], arguments: list[str]) -> NoReturn:
    runtime = own.get("runtime") or "runc"
    if is_plugin(arguments):
        os.execvp(runtime, [runtime, *arguments])  # noqa: S606 - no shell is wanted
    bundle = bundle_of(arguments)
    if bundle is not None:
        _edit(bundle, own, arguments[-1])
    elif "exec" in arguments and (rules := _strict_rules(own)) is not None:
        from convgpu.runtime.strict.start import confine_exec  # noqa: PLC0415 - see above

        confine_exec(arguments, rules)
    elif "restore" in arguments and _strict_rules(own) is not None:
        # What it would be is in files of whoever says where these are: users, capabilities and mounts of the host.
        raise PermissionError("strict-calls: nothing of a checkpoint is judged.\nStart the container without one.")
    else:
        _network(runtime, arguments)
    os.execvp(runtime, [runtime, *arguments])  # noqa: S606 - no shell is wanted


def _network(runtime: str, arguments: list[str]) -> None:
    """Fence a container that starts, and measure one that ends; of most there is no note."""
    step = next((word for word in arguments if word in _STEPS), None)
    if step is None or not os.path.exists(f"{_NOTES}/{arguments[-1]}"):  # noqa: PTH110 - pathlib is not imported
        return
    from convgpu.runtime.network.shares import Shares  # noqa: PLC0415 - see above

    if step == "start":
        Shares().fence(arguments[-1], [runtime, *arguments[: arguments.index(step)]])
    else:
        Shares().measure(arguments[-1])


def _edit(bundle: str, own: dict[str, str], container: str) -> None:
    import json  # noqa: PLC0415 - see above
    from pathlib import Path  # noqa: PLC0415

    from convgpu.runtime.edits import inject_limit, uses_gpu  # noqa: PLC0415

    file = Path(bundle, "config.json")
    given = json.loads(file.read_bytes())
    rules = _strict_rules(own)
    config, opens = _lead_mounts(given, rules, own, file.parent, container)
    _note_network(config, container)
    root = Path(bundle, str((config.get("root") or {}).get("path") or ""))
    limited = None
    if _may_need_limit(config, opens):
        limited = inject_limit(config, _host(own, root, opens), own.get("memory"))
    edited = limited or config
    if rules is not None and limited is None and not uses_gpu(config, _unknown_host(opens)):
        from convgpu.runtime.strict.driver_calls import without_driver_calls  # noqa: PLC0415

        edited = without_driver_calls(config)
    if edited is not given:
        fresh = file.with_name("config.json.convgpu")
        fresh.write_text(json.dumps(edited))
        fresh.chmod(file.stat().st_mode)
        fresh.replace(file)


def _note_network(config: dict[str, Any], container: str) -> None:
    rows = (config.get("process") or {}).get("env") or ()
    if not any(row.startswith(_NETWORK) for row in rows):
        return
    from convgpu.runtime.network.fence import wanted  # noqa: PLC0415 - see above
    from convgpu.runtime.network.shares import Shares  # noqa: PLC0415
    from convgpu.runtime.oci_config import variables  # noqa: PLC0415

    Shares().note(container, wanted(config), variables(config).get("CONVGPU_JOB", ""))


def _lead_mounts(
    config: dict[str, Any], rules: "StrictRules | None", own: dict[str, str], bundle: "Path", container: str
) -> "tuple[dict[str, Any], OpenSource]":
    """Refuse what the strict rules of the site do not list; most sites have none."""
    from convgpu.runtime.devices import open_source  # noqa: PLC0415 - see above

    if rules is None:
        return config, open_source
    from convgpu.runtime.strict.start import lead_mounts  # noqa: PLC0415 - see above

    # DIRECTORY is ROOT/plugins/ID/propagated-mount.
    root = own["directory"].rsplit("/", 3)[0] if own.get("directory") else _ENGINE_ROOT
    return lead_mounts(config, rules, bundle, root, container)


def _strict_rules(own: dict[str, str]) -> "StrictRules | None":
    try:
        with open(own.get("rules") or _RULES, "rb") as file:  # noqa: PTH123 - pathlib is not imported
            raw = file.read()
    except FileNotFoundError:
        return None
    if b"strict" not in raw:
        return None
    from convgpu.runtime.strict.judgement import read_strict  # noqa: PLC0415 - see above

    return read_strict(raw)


def _may_need_limit(config: dict[str, Any], opens: "OpenSource") -> bool:
    """Tell whether a container has to do with GPUs; all others start without a plugin, too."""
    from convgpu.runtime.edits import NoLimit, has_device, inject_limit  # noqa: PLC0415 - see above
    from convgpu.runtime.last_word import HookUndone  # noqa: PLC0415

    try:
        return has_device(config) or inject_limit(config, _unknown_host(opens), "1") is not None
    except (NoLimit, HookUndone):
        return True


def _unknown_host(opens: "OpenSource") -> "Host":
    """Return a host without a plugin."""
    from convgpu.runtime.devices import GpuNumbers  # noqa: PLC0415 - see above
    from convgpu.runtime.edits import Host  # noqa: PLC0415

    return Host("", "unknown", simulated=False, is_gpu=GpuNumbers().has, open_source=opens)


def _host(own: dict[str, str], root: "Path | None" = None, opens: "OpenSource | None" = None) -> "Host":
    from pathlib import Path  # noqa: PLC0415 - see above

    from convgpu.protocol.layout import DRIVER_FOLDER  # noqa: PLC0415
    from convgpu.runtime.devices import GpuNumbers, open_source  # noqa: PLC0415
    from convgpu.runtime.edits import Host  # noqa: PLC0415
    from convgpu.runtime.root_folder import RootFolder  # noqa: PLC0415
    from convgpu.runtime.scheduler_client import find_directory  # noqa: PLC0415

    # Resolved, as the Engine names the sources of mounts.
    directory = (Path(own["directory"]) if own.get("directory") else find_directory()).resolve()
    simulated = (directory / DRIVER_FOLDER).is_dir()
    program = os.path.abspath(sys.argv[0])  # noqa: PTH100
    folder = None if root is None else RootFolder(root)
    return Host(program, str(directory), simulated, GpuNumbers().has, opens or open_source, folder)


def _hook(own: dict[str, str], command: list[str]) -> None:
    import json  # noqa: PLC0415 - see above
    from pathlib import Path  # noqa: PLC0415

    from convgpu.runtime.oci_hook import begin, end  # noqa: PLC0415

    state: dict[str, Any] = json.load(sys.stdin)
    directory = Path(_host(own).directory)
    if command == ["begin"]:
        begin(directory, state)
    elif command == ["end"]:
        end(directory, state)
    else:
        raise ValueError(f"unknown hook {' '.join(command)!r}")


def _fail(arguments: "Sequence[str]", text: str) -> NoReturn:
    import json  # noqa: PLC0415 - see above

    line = f"convgpu: {text}"
    sys.stderr.write(f"{line}\n")
    if "--log" in arguments[:-1]:
        # containerd shows the last line of the runtime's log as the reason.
        with open(arguments[arguments.index("--log") + 1], "a", encoding="utf-8") as log:  # noqa: PTH123 - as above
            log.write(json.dumps({"level": "error", "msg": line, "time": "1970-01-01T00:00:00Z"}) + "\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
