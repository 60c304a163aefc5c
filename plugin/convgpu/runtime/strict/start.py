"""Judges a container that starts by the strict rules of the site, leads its mounts to what was judged, and its IDs."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from convgpu.runtime.devices import Source, open_source
from convgpu.runtime.strict.confinement import (
    CAPABILITIES,
    Unconfined,
    confine,
    with_engine_files_kept,
    without_capabilities,
    without_holds,
)
from convgpu.runtime.strict.host_view import is_hosts, look_at_host
from convgpu.runtime.strict.joined import hold_joined, open_process, read_at
from convgpu.runtime.strict.judgement import HostMount, NotListed, StrictRules, is_bind, refuse_unlisted
from convgpu.runtime.strict.open_path import Opened, open_path
from convgpu.runtime.strict.own_ids import OwnIds, give_pipes
from convgpu.runtime.strict.staging import enter_own_namespace, stage
from convgpu.runtime.strict.user_ids import UserIds, is_remapped, process_user, read_ids, with_ids

_HOLDS: Final = ("nosuid", "nodev")
# Of a mount in a user namespace the kernel takes none of these away, so the real runtime has to name them.
_FLAGS: Final = ((os.ST_NOSUID, "nosuid"), (os.ST_NODEV, "nodev"), (os.ST_NOEXEC, "noexec"))
_STARTED: Final = 19  # the 22nd field of /proc/PID/stat, behind the name

OpenSource = Callable[[str], Source]
Mount = dict[str, Any]


def lead_mounts(
    config: dict[str, Any], rules: StrictRules, bundle: Path, engine_root: str, container: str
) -> tuple[dict[str, Any], OpenSource]:
    """Return the configuration whose mounts lead to what was judged, and how its sources are opened.

    The container gets user IDs of its own, unless the site lists those of others. This process gets a namespace of
    mounts of its own for both.

    Raises:
        NotListed: the container has what the list lacks, or cannot have IDs of its own.
        OSError: a system call failed.
    """
    # First of all, as who judges it then, and joins it, has what was opened.
    record = Path(engine_root, "containers", container, "hostconfig.json")
    config, joined = hold_joined(config, record, open_process, shared="shared" in rules.ids)
    host = look_at_host(engine_root, container)
    config = with_engine_files_kept(config, host.engine_root)
    shown = refuse_unlisted(config, rules, host)
    of_others = "shared" if is_remapped(config) else "host"
    if not shown and of_others in rules.ids:
        return without_holds(config), open_source
    enter_own_namespace()
    writes = any(each.writes for each in shown)
    config, ids = (config, None) if of_others in rules.ids else _own_ids(config, bundle, joined, writes=writes)
    mounts = [dict(mount) for mount in config.get("mounts") or ()]
    staged: dict[str, Source] = {}
    for each in shown:
        opened = _open(each, str(mounts[each.number].get("destination")))
        if each.writes and "setgid" not in rules.accept:
            _refuse_setgid(opened, host.mounts_below(each.path) if each.recursive else ())
        place = stage(bundle, each.number, opened, recursive=each.recursive, writes=each.writes, ids=ids)
        staged[place] = Source(each.path, open_source(opened.link).numbers)
        mounts[each.number] = _led(mounts[each.number], place, writes=each.writes)
    led = {**config, "mounts": mounts}
    if ids is not None:
        led = _lead_devices(_lead_engines(led, ids, staged), ids, staged)
        give_pipes(ids.ids.kernel_id(process_user(led)))
    if writes or (ids is not None and ids.ids.may_write):
        led = _confined(led)
    return without_holds(led), lambda source: staged.get(source) or open_source(source)


def _refuse_setgid(opened: Opened, below: Sequence[str]) -> None:
    """Refuse a writable path in which a user with an account on the host could be left a setgid program.

    Such a user sets the bit, on a file of the user's own; root of the container gives it, or the folder of a file that
    comes into being just then, another group (decision 165). What the host mounts `nosuid` it runs as nobody else.
    """
    for path, where in ((opened.path, opened.link), *((each, each) for each in below)):
        if not os.statvfs(where).f_flag & os.ST_NOSUID:
            raise NotListed(
                f"strict-accept: this container writes {path}, which this host does not mount nosuid: a user with an "
                f"account here could be left a setgid program. Ask the administrator for `mount --bind` of the listed "
                "folder onto itself and `mount -o remount,bind,nosuid,nodev`, or, where no user has an account here, "
                "for an entry: accept = ['setgid']"
            )


def _confined(config: dict[str, Any]) -> dict[str, Any]:
    try:
        return confine(config)
    except Unconfined:
        raise NotListed(
            "strict-security: a container that writes a path of the host keeps the Engine's filter of system calls, "
            "which keeps it from setuid files. Leave out seccomp=unconfined and profiles that permit what they do not "
            "name, or mount the path with :ro"
        ) from None


def _lead_engines(config: dict[str, Any], ids: OwnIds, staged: dict[str, Source]) -> dict[str, Any]:
    """Give the Engine's own mounts the container's IDs: its volumes, and files such as /etc/hosts."""
    mounts = []
    for number, mount in enumerate(config["mounts"]):
        source, options = str(mount.get("source") or ""), list(mount.get("options") or ())
        if source in staged or not is_bind(mount) or not os.path.exists(source):  # noqa: PTH110 - of each start
            mounts.append(mount)
            continue
        found = open_source(source)
        if found.numbers is None:
            place = ids.bind(source, number, recursive="rbind" in options)
            staged[place] = found
            mount |= {"source": place, "options": [*options, *_flags(place)]}
        mounts.append(mount)
    return {**config, "mounts": mounts}


def _lead_devices(config: dict[str, Any], ids: OwnIds, staged: dict[str, Source]) -> dict[str, Any]:
    """Give the container device nodes of its own in place of the host's; what it may do with them stays as it is."""
    linux, mounts = dict(config.get("linux") or {}), list(config.get("mounts") or ())
    kept = []
    for number, device in enumerate(linux.get("devices") or ()):
        if device.get("type") not in {"b", "c", "u"}:
            kept.append(device)
            continue
        place, path = ids.make_device(device, number), str(device.get("path"))
        staged[place] = Source(path, None if device["type"] == "b" else (int(device["major"]), int(device["minor"])))
        mounts.append({"destination": path, "type": "bind", "source": place, "options": ["bind", "nosuid", "noexec"]})
    return {**config, "linux": linux | {"devices": kept}, "mounts": mounts}


def _flags(place: str) -> list[str]:
    held = os.statvfs(place).f_flag
    return [name for flag, name in _FLAGS if held & flag]


def _own_ids(
    config: dict[str, Any], bundle: Path, joined: UserIds | None, *, writes: bool
) -> tuple[dict[str, Any], OwnIds]:
    """Return the configuration of a container with IDs and a root file system of its own, and the IDs."""
    if is_remapped(config):
        raise NotListed(
            "strict-ids: by userns-remap all containers of this Engine have the same user IDs. Take it out of "
            "daemon.json, as under strict rules each has its own, or ask the administrator for an entry: "
            "ids = ['shared']"
        )
    root = dict(config.get("root") or {})
    try:
        ids = OwnIds.of(config, joined, writes=writes)
        place, reason = ids.mount_root(str(bundle / str(root.get("path") or "rootfs"))), "no other IDs there"
    except OSError as error:
        place, reason = None, error.strerror or str(error)
    if place is None:
        raise NotListed(
            f"strict-ids: this container would have the host's user IDs ({reason}): strict rules need user "
            "namespaces, the storage driver overlay2 and Linux 5.19. Where no user has an account on the host, ask the "
            "administrator for an entry: ids = ['host']"
        )
    if writes and not ids.ids.may_write:
        raise NotListed(
            "strict-ids: this container writes a path of the host, and the one whose namespace it joins does not, and "
            "may make setuid files with the same user IDs. Mount the path there too, or here with :ro"
        )
    return with_ids({**_without_hosts(config), "root": root | {"path": place}}, ids.ids), ids


def _without_hosts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out namespaces that are the host's, which a container has anyway.

    The real runtime would join them again for each `docker exec`, in the container's user namespace, which may not.
    """
    linux = dict(config.get("linux") or {})
    rows = [row for row in linux.get("namespaces") or () if not (row.get("path") and is_hosts(str(row["path"])))]
    return {**config, "linux": linux | {"namespaces": rows}}


def _open(mount: HostMount, destination: str) -> Opened:
    try:
        return open_path(mount.path)
    except OSError as error:
        raise NotListed(
            f"strict-paths: {mount.path}, mounted at {destination}, was swapped meanwhile ({error.strerror or error})"
        ) from error


def _led(mount: Mapping[str, Any], place: str, *, writes: bool) -> Mount:
    options = list(mount.get("options") or ())
    return {**mount, "source": place, "options": [*options, *(_HOLDS if writes else _flags(place))]}


def confine_exec(arguments: Sequence[str], rules: StrictRules, tables: Path = Path("/proc")) -> None:
    """Take from a program that is to run in a container what was taken from the container itself.

    The Engine gives it the capabilities that the container was made with; its filter of calls is the container's.

    Args:
        arguments: of `exec`, as containerd gives them to an OCI runtime.
        rules: of the site.
        tables: where the IDs of each process are.

    Raises:
        NotListed: it cannot be judged, or the container has the host's user IDs from before the rules.
    """
    process, root = _value(arguments, "--process", "-p"), _value(arguments, "--root")
    if process is None:
        raise NotListed("strict-capabilities: a program that is started without --process cannot be judged")
    state = json.loads(Path(root or "/run/runc", arguments[-1], "state.json").read_bytes())
    bounding = ((state.get("config") or {}).get("capabilities") or {}).get("Bounding") or ()
    taken = CAPABILITIES - frozenset(bounding)
    asked = json.loads(Path(process).read_bytes())
    ids = read_ids(_table(state, tables))
    if ids is None and "host" not in rules.ids:
        raise NotListed("strict-ids: this container has the host's user IDs, from before the rules. Start it again")
    if ids is not None and not (ids.is_drawn or "shared" in rules.ids):
        raise NotListed("strict-ids: this container has user IDs that nobody gave it. Start it again")
    if ids is not None:
        give_pipes(ids.kernel_id(process_user({"process": asked})))
    if taken and asked.get("capabilities"):
        asked["capabilities"] = without_capabilities(asked["capabilities"], taken)
        Path(process).write_text(json.dumps(asked))


def _table(state: Mapping[str, Any], tables: Path) -> str:
    """Return the `uid_map` of a container's first process, and not of one that has its number since."""
    folder = os.open(tables / str(state.get("init_process_pid") or "self"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        started = read_at(folder, "stat").rpartition(")")[2].split()[_STARTED]
        table = read_at(folder, "uid_map")
    finally:
        os.close(folder)
    if str(state.get("init_process_start", started)) != started:
        raise NotListed("strict-exec: this container has ended")
    return table


def _value(arguments: Sequence[str], *names: str) -> str | None:
    for number, argument in enumerate(arguments):
        for name in names:
            if argument == name and number + 1 < len(arguments):
                return arguments[number + 1]
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return None
