"""What strict rules say at each start: mounts and devices as they are then."""

import json
from pathlib import Path
from typing import Any

import pytest

from convgpu.runtime.strict.host_view import is_hosts, made_by_engine, mounts_below, numbers_of, real_path
from convgpu.runtime.strict.judgement import HostMount, HostView, NotListed, StrictRules, read_strict, refuse_unlisted

# Of a host that this machine need not be.
THERE = {
    *("/srv", "/srv/data", "/srv/data/below", "/srv/data2", "/opt/tools", "/opt/tools/bin", "/usr/bin/docker-init"),
    *("/var/lib/docker/volumes/v/_data", "/var/lib/docker/containers/c/hostname", "/usr/lib/libcuda.so.1"),
}
OWN = {"namespaces": [{"type": name} for name in ("mount", "network", "pid", "ipc", "uts")]}
RULES = StrictRules(
    paths=("/srv/data", "/opt/tools:ro"),
    devices=("/dev/fuse",),
    capabilities=("NET_ADMIN",),
    namespaces=("ipc=container",),
)


def view(**changed: Any) -> HostView:
    fields = {
        "engine_root": "/var/lib/docker",
        "real_path": lambda path: path if path in THERE else real_path(path),
        "mounts_below": lambda path: ["/opt/tools/disk"] if path == "/opt/tools" else [],
        "numbers_of": lambda path: frozenset({(10, 229)} if path == "/dev/fuse" else ()),
        "is_gpu": lambda major, _: major == 195,
        "cdi_paths": frozenset({"/usr/lib/libcuda.so.1", "/dev/vendor0"}),
        "is_hosts": lambda path: path == "/run/docker/netns/default",
    }
    return HostView(**{**fields, **changed})


def bind(source: str, *options: str, destination: str = "/x") -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": source, "options": ["rbind", *options]}


def device(path: str, major: int, minor: int, kind: str = "c") -> dict[str, Any]:
    return {"linux": {**OWN, "devices": [{"path": path, "type": kind, "major": major, "minor": minor}]}}


def joins(name: str, path: str) -> dict[str, Any]:
    rows = [row for row in OWN["namespaces"] if row["type"] != name]
    return {"linux": {"namespaces": [*rows, {"type": name, "path": path}]}}


def capabilities(*names: str) -> dict[str, Any]:
    return {"process": {"capabilities": {"bounding": list(names), "ambient": None}}}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"mounts": [bind("/srv/data"), bind("/srv/data/below", "ro"), bind("/opt/tools/bin", "ro")]},
        {"mounts": [bind("/var/lib/docker/volumes/v/_data"), bind("/var/lib/docker/containers/c/hostname")]},
        {"mounts": [bind("/usr/lib/libcuda.so.1", "ro"), bind("/usr/bin/docker-init", "ro")]},
        {"mounts": [bind("/opt/tools", "rro"), {"destination": "/t", "type": "tmpfs", "source": "tmpfs"}]},
        device("/dev/fuse", 10, 229),
        device("/dev/any", 195, 0),
        device("/dev/vendor0", 240, 0),
        joins("network", "/run/docker/netns/1234"),
        joins("ipc", "/proc/7/ns/ipc"),
        capabilities("CAP_CHOWN", "CAP_NET_RAW", "CAP_NET_ADMIN"),
    ],
)
def test_what_is_listed_and_what_the_engine_mounts_itself_start(config: dict[str, Any]) -> None:
    refuse_unlisted(config, RULES, view())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"mounts": [bind("/etc")]}, "strict-paths: /etc, mounted at /x"),
        ({"mounts": [bind("/srv/data2")]}, "strict-paths: /srv/data2"),
        ({"mounts": [bind("/srv")]}, "strict-paths: /srv,"),
        ({"mounts": [bind("/opt/tools/bin")]}, "strict-paths: /opt/tools/bin,"),
        ({"mounts": [bind("/opt/tools", "ro")]}, "strict-paths: /opt/tools/disk,"),
        ({"mounts": [bind("/srv/data/../../etc", "ro")]}, "strict-paths: /srv/data/../../etc:ro, mounted at /x,"),
        ({"mounts": [bind("/nowhere/x", "ro")]}, "strict-paths: /nowhere/x:ro, mounted at /x, is not there"),
        ({"mounts": [{"destination": "/x", "type": "tmpfs", "source": "tmpfs", "options": ["bind"]}]}, "strict-paths"),
        ({"mounts": [{"destination": "/x", "source": "/root", "options": ["bind"]}]}, "strict-paths: /root"),
        ({"mounts": [bind("/usr/lib/libcuda.so.1")]}, "strict-paths: "),
        ({"mounts": [bind("/var/lib/docker/overlay2/o/merged")]}, "strict-paths: "),
        (device("/dev/fuse", 8, 0, "b"), "strict-devices: the device /dev/fuse .b 8:0."),
        (device("/dev/kvm", 10, 232), "strict-devices: the device /dev/kvm"),
        (device("/srv/fuse", 10, 229), "strict-devices: /srv/fuse is no place for a device"),
        (device("/dev/../srv/fuse", 10, 229), "strict-devices: /dev/../srv/fuse is no place"),
        (
            device("/dev/x/fuse", 10, 229) | {"mounts": [bind("/srv/data", destination="/dev/x")]},
            "/dev/x/fuse is no place",
        ),
        (device("/dev/nvidia0", 195, 0) | {"mounts": [bind("/srv/data", destination="/dev")]}, "is no place"),
        ({"linux": {"namespaces": OWN["namespaces"][2:]}}, "strict-namespaces: the network namespace of the host"),
        ({"linux": {"namespaces": OWN["namespaces"][:4]}}, "strict-namespaces: the uts namespace of the host"),
        ({"linux": {}}, "strict-namespaces: the network namespace of the host"),
        (joins("network", "/run/docker/netns/default"), "strict-namespaces: the network namespace of the host"),
        (joins("pid", "/proc/7/ns/pid"), r"namespaces = \['pid=container'\]"),
        (joins("network", "/proc/7/ns/net"), "strict-namespaces: the network namespace of the container"),
        (joins("network", "/proc/./7/fd/8"), "strict-namespaces: the network namespace of the container"),
        (capabilities("CAP_CHOWN", "CAP_SYS_ADMIN"), r"capabilities = \['SYS_ADMIN'\]"),
    ],
)
def test_everything_else_does_not(config: dict[str, Any], text: str) -> None:
    with pytest.raises(NotListed, match=text):
        refuse_unlisted(config, RULES, view())


def test_what_the_engine_makes_below_a_writable_entry_does_not_start(tmp_path: Path) -> None:
    record = tmp_path / "config.v2.json"
    assert made_by_engine(record) == frozenset()
    points = {"/x": {}, "/v": {"Type": "volume"}, "/m": {"SkipMountpointCreation": True}}
    rows = {place: {"Type": "bind", "Destination": place, **more} for place, more in points.items()}
    record.write_text(json.dumps({"MountPoints": rows}))
    made = made_by_engine(record)
    assert made == {"/x"}
    with pytest.raises(NotListed, match="strict-paths: the Engine would make /srv/data/below"):
        refuse_unlisted({"mounts": [bind("/srv/data/below", "ro")]}, RULES, view(made=made))
    fine = [bind("/srv/data"), bind("/opt/tools/bin", "ro"), bind("/srv/data/below", destination="/m")]
    refuse_unlisted({"mounts": fine}, RULES, view(made=made))


def test_what_is_to_be_mounted_is_returned_as_it_leads() -> None:
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        bind("/srv/data/below"),
        bind("/opt/tools", "rro"),
    ]
    assert refuse_unlisted({"mounts": mounts}, RULES, view()) == [
        HostMount(1, "/srv/data/below", writes=True, recursive=True),
        HostMount(2, "/opt/tools", writes=False, recursive=True),
    ]


def test_namespaces_of_this_process_are_the_hosts() -> None:
    assert [is_hosts(f"/proc/self/ns/{name}") for name in ("net", "pid", "ipc", "uts", "nothing")] == [True] * 4 + [
        False
    ]


def test_a_folder_that_was_swapped_is_what_it_is_now(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rules = StrictRules(paths=(str(folder),))
    config = {"mounts": [bind(f"{folder}/work")]}
    (folder / "work").mkdir()
    refuse_unlisted(config, rules, view())
    (folder / "work").rmdir()
    (folder / "work").symlink_to("/etc")
    with pytest.raises(NotListed, match=f"strict-paths: {folder}/work, "):
        refuse_unlisted(config, rules, view())


def test_a_link_into_the_folder_of_another_volume_is_no_volume(tmp_path: Path) -> None:
    root = tmp_path / "docker"
    (root / "volumes/theirs/_data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / "volumes/theirs/_data")
    host = view(engine_root=str(root))
    refuse_unlisted({"mounts": [bind(f"{root}/volumes/theirs/_data")]}, RULES, host)
    with pytest.raises(NotListed, match="strict-paths"):
        refuse_unlisted({"mounts": [bind(f"{tmp_path}/link")]}, RULES, host)


@pytest.mark.parametrize("mode", ["enforce", "audit", "off"])
def test_other_modes_have_no_list_here(mode: str) -> None:
    assert read_strict(f'mode = "{mode}"\n[strict]\npaths = ["/srv"]'.encode()) is None


def test_the_list_is_read_from_the_rules_and_a_broken_one_starts_nothing() -> None:
    assert read_strict(b'mode = "strict"\n[strict]\npaths = ["/srv:ro"]') == StrictRules(("/srv:ro",))
    assert read_strict(b"'mode' = 'strict'") == StrictRules()
    for raw in (b'mode = "strict"\n[strict', b'mode = "strict"\n[strict]\npaths = 1', b'mode = "strict"\nstrict = 1'):
        with pytest.raises(NotListed, match="cannot be read"):
            read_strict(raw)


def test_mount_points_below_a_folder_are_found_with_their_blanks(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    rows = ("1 0 8:1 / / rw", "2 1 8:2 / /opt/a\\040b rw", "3 1 8:3 / /opt rw", "4 1 8:4 / /optional rw")
    table.write_text("\n".join(f"{row} - ext4 none rw" for row in rows))
    assert mounts_below("/opt", table) == ["/opt/a b"]
    assert mounts_below("/", table) == ["/opt/a b", "/opt", "/optional"]


def test_the_numbers_of_listed_devices_are_those_of_nodes_and_not_of_links(tmp_path: Path) -> None:
    assert numbers_of("/dev/null") == frozenset({(1, 3)})
    (tmp_path / "link").symlink_to("/dev/null")
    assert numbers_of(f"{tmp_path}/link") == numbers_of(f"{tmp_path}/missing") == frozenset()
