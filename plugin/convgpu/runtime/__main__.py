"""`convgpu-runtime`: stands before an OCI runtime, and is the hook of the containers that it or CDI covers.

As runtime, `convgpu-runtime [--convgpu-OPTION=VALUE...] WORDS...` gives WORDS to the real runtime, after it has edited
the bundle of a `create` that gets a GPU or has CONVGPU_MEMORY. Options: `--convgpu-memory` (limit of a container that
names none), `--convgpu-runtime` (the real one; default runc), `--convgpu-directory` (the scheduler's).
As hook, `convgpu-runtime hook begin|end`, with the container's state on stdin.

Every call of every container's runtime comes by here, so what only a `create` or a hook needs is imported there.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from convgpu.runtime.edits import Host

_PREFIX: Final = "--convgpu-"
_OPTIONS: Final = ("memory", "runtime", "directory")
_CREATES: Final = ("create", "run")


def main() -> None:
    """Do what the words say; a failure is one line, where the Engine shows it."""
    words = sys.argv[1:]
    own, rest = split(words)
    try:
        if rest[:1] == ["hook"]:
            _hook(own, rest[1:])
        else:
            _run(own, rest)
    except Exception as error:
        _fail(rest, f"{type(error).__name__}: {error}" if not str(error) else str(error))


def split(words: "Sequence[str]") -> tuple[dict[str, str], list[str]]:
    """Return our options, which stand in front or behind `hook`, and the other words."""
    own: dict[str, str] = {}
    rest = []
    for word in words:
        name, _, value = word.removeprefix(_PREFIX).partition("=")
        if word.startswith(_PREFIX) and name in _OPTIONS:
            own[name] = value
        else:
            rest.append(word)
    return own, rest


def bundle_of(words: "Sequence[str]") -> str | None:
    """Return the bundle of a container that these words of an OCI runtime make; None if they make none."""
    create = next((place for place, word in enumerate(words) if word in _CREATES), None)
    if create is None:
        return None
    behind = list(words[create + 1 :])
    for place, word in enumerate(behind):
        if word in {"--bundle", "-b"} and place + 1 < len(behind):
            return behind[place + 1]
        if word.startswith("--bundle="):
            return word.removeprefix("--bundle=")
    return os.getcwd()  # noqa: PTH109 - pathlib is not imported


def _run(own: dict[str, str], words: list[str]) -> NoReturn:
    bundle = bundle_of(words)
    if bundle is not None:
        _edit(bundle, own)
    runtime = own.get("runtime") or "runc"
    os.execvp(runtime, [runtime, *words])  # noqa: S606 - no shell is wanted


def _edit(bundle: str, own: dict[str, str]) -> None:
    import json  # noqa: PLC0415 - see above
    from pathlib import Path  # noqa: PLC0415

    from convgpu.runtime.edits import cover  # noqa: PLC0415

    file = Path(bundle, "config.json")
    config = json.loads(file.read_bytes())
    edited = cover(config, _host(own), own.get("memory")) if _may_concern_us(config) else None
    if edited is not None:
        fresh = file.with_name("config.json.convgpu")
        fresh.write_text(json.dumps(edited))
        fresh.chmod(file.stat().st_mode)
        fresh.replace(file)


def _may_concern_us(config: dict[str, Any]) -> bool:
    """Containers that have nothing to do with GPUs start without a plugin, too."""
    from convgpu.runtime.devices import GpuNumbers  # noqa: PLC0415 - see above
    from convgpu.runtime.edits import Host, NoLimit, cover  # noqa: PLC0415

    try:
        return cover(config, Host("", "unknown", simulated=False, is_gpu=GpuNumbers().has), "1") is not None
    except NoLimit:
        return True


def _host(own: dict[str, str]) -> "Host":
    from pathlib import Path  # noqa: PLC0415 - see above

    from convgpu.runtime.devices import GpuNumbers  # noqa: PLC0415
    from convgpu.runtime.edits import Host  # noqa: PLC0415
    from convgpu.runtime.scheduler_client import find_directory  # noqa: PLC0415

    # Resolved, as the Engine names the sources of mounts.
    directory = (Path(own["directory"]) if own.get("directory") else find_directory()).resolve()
    simulated = (directory / "driver").is_dir()
    return Host(os.path.abspath(sys.argv[0]), str(directory), simulated, GpuNumbers().has)  # noqa: PTH100


def _hook(own: dict[str, str], words: list[str]) -> None:
    import json  # noqa: PLC0415 - see above
    from pathlib import Path  # noqa: PLC0415

    from convgpu.runtime.oci_hook import begin, end  # noqa: PLC0415

    state: dict[str, Any] = json.load(sys.stdin)
    directory = Path(_host(own).directory)
    if words == ["begin"]:
        begin(directory, state)
    elif words == ["end"]:
        end(directory, state)
    else:
        raise ValueError(f"unknown hook {' '.join(words)!r}")


def _fail(words: "Sequence[str]", text: str) -> NoReturn:
    import json  # noqa: PLC0415 - see above

    line = f"convgpu: {text}"
    sys.stderr.write(f"{line}\n")
    if "--log" in words[:-1]:
        # containerd takes what the runtime logged last as the reason.
        with open(words[words.index("--log") + 1], "a", encoding="utf-8") as log:  # noqa: PTH123 - as above
            log.write(json.dumps({"level": "error", "msg": line, "time": "1970-01-01T00:00:00Z"}) + "\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
