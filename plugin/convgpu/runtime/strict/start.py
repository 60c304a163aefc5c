"""Judges a container that starts by the strict rules of the site, and leads its mounts to what was judged."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.devices import Source, open_source
from convgpu.runtime.strict.confinement import CAPABILITIES, confine, without_capabilities
from convgpu.runtime.strict.host_view import look_at_host
from convgpu.runtime.strict.judgement import HostMount, NotListed, StrictRules, refuse_unlisted
from convgpu.runtime.strict.open_path import Opened, open_path
from convgpu.runtime.strict.staging import enter_own_namespace, stage

_HOLDS: Final = ("nosuid", "nodev")

OpenSource = Callable[[str], Source]


def lead_mounts(
    config: dict[str, Any], rules: StrictRules, bundle: Path, engine_root: str
) -> tuple[dict[str, Any], OpenSource]:
    """Return the configuration whose mounts lead to what was judged, and how its sources are opened.

    This process gets a namespace of mounts of its own if there is such a mount.

    Raises:
        NotListed: the container has what the list lacks.
        OSError: a system call failed.
    """
    shown = refuse_unlisted(config, rules, look_at_host(engine_root))
    if not shown:
        return config, open_source
    enter_own_namespace()
    mounts = [dict(mount) for mount in config["mounts"]]
    staged: dict[str, Source] = {}
    for each in shown:
        opened = _open(each, str(mounts[each.number].get("destination")))
        place = stage(bundle, each.number, opened, recursive=each.recursive, writes=each.writes)
        staged[place] = Source(each.path, open_source(opened.link).numbers)
        mounts[each.number] = _led(mounts[each.number], place, writes=each.writes)
    led = {**config, "mounts": mounts}
    if any(each.writes for each in shown):
        led = confine(led)
    return led, lambda source: staged.get(source) or open_source(source)


def _open(mount: HostMount, destination: str) -> Opened:
    try:
        return open_path(mount.path)
    except OSError as error:
        raise NotListed(
            f"strict-paths: {mount.path}, mounted at {destination}, was swapped meanwhile ({error.strerror or error})"
        ) from error


def _led(mount: Mapping[str, Any], place: str, *, writes: bool) -> dict[str, Any]:
    options = list(mount.get("options") or ())
    return {**mount, "source": place, "options": [*options, *_HOLDS] if writes else options}


def confine_exec(arguments: Sequence[str]) -> None:
    """Take from a program that is to run in a container what was taken from the container itself.

    The Engine gives it the capabilities that the container was made with; its filter of calls is the container's.

    Args:
        arguments: of `exec`, as containerd gives them to an OCI runtime.
    """
    process, root = _value(arguments, "--process", "-p"), _value(arguments, "--root")
    if process is None:
        raise NotListed("strict-capabilities: a program that is started without --process cannot be judged")
    state = json.loads(Path(root or "/run/runc", arguments[-1], "state.json").read_bytes())
    bounding = ((state.get("config") or {}).get("capabilities") or {}).get("Bounding") or ()
    taken = CAPABILITIES - frozenset(bounding)
    asked = json.loads(Path(process).read_bytes())
    if taken and asked.get("capabilities"):
        asked["capabilities"] = without_capabilities(asked["capabilities"], taken)
        Path(process).write_text(json.dumps(asked))


def _value(arguments: Sequence[str], *names: str) -> str | None:
    for number, argument in enumerate(arguments):
        for name in names:
            if argument == name and number + 1 < len(arguments):
                return arguments[number + 1]
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return None
