"""Of another container's process one gets the namespaces that were judged, whoever has its number afterwards."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from convgpu.runtime.strict.idmap import open_user_namespace
from convgpu.runtime.strict.joined import Process, held_path, hold_joined, open_process, read_at, refuse_strangers
from convgpu.runtime.strict.judgement import NotListed
from convgpu.runtime.strict.user_ids import FIRST, SLOT, UserIds, read_ids

PARTNER = "0a" * 32
OTHER = "1b" * 32
HOST, USER, THIRD = (4, 1), (4, 2), (4, 3)
DRAWN = f"0 {FIRST} 65536\n70000 {FIRST + 65536} 1\n"
OWN = [{"type": name} for name in ("mount", "network", "pid", "uts")]


def process(**changed):
    fields = {
        "user": USER,
        "host": HOST,
        "owner": 0,
        "parent": HOST,
        "tables": (DRAWN, DRAWN),
        "cgroup": f"0::/docker/{PARTNER}\n",
        "owners": {"ipc": USER},
        "held": {"ipc": 7, "user": 8},
    }
    return Process(**{**fields, **changed})


@pytest.fixture
def record(tmp_path):
    file = tmp_path / "hostconfig.json"
    file.write_text(json.dumps({"IpcMode": f"container:{PARTNER}", "NetworkMode": "none", "PidMode": ""}))
    return file


def joins(path, kind="ipc", *more):
    return {"linux": {"namespaces": [*OWN, {"type": kind, "path": path}, *more]}}


def test_the_runtime_joins_what_was_opened(record):
    asked = []
    config, ids = hold_joined(
        joins("/proc/7/ns/ipc"), record, lambda *words: asked.append(words) or process(), shared=False
    )
    assert asked == [(7, ["ipc"])]
    assert config["linux"]["namespaces"] == [*OWN, {"type": "ipc", "path": f"/proc/./{os.getpid()}/fd/7"}]
    assert ids == UserIds(read_ids(DRAWN).rows, f"/proc/./{os.getpid()}/fd/8")


def test_with_user_ids_of_the_engine_the_user_namespace_is_held_as_well(record):
    config = joins("/proc/7/ns/ipc", "ipc", {"type": "user", "path": "/proc/7/ns/user"})
    remapped = process(tables=("0 100000 65536\n",) * 2)
    held, _ = hold_joined(config, record, lambda *_: remapped, shared=True)
    assert held["linux"]["namespaces"][-2:] == [
        {"type": "ipc", "path": held_path(7)},
        {"type": "user", "path": held_path(8)},
    ]


def test_who_joins_nobody_stays_as_it_is(tmp_path):
    config = {"linux": {"namespaces": [*OWN, {"type": "ipc"}, {"type": "network", "path": "/run/docker/netns/x"}]}}
    assert hold_joined(config, tmp_path / "none", None, shared=False) == (config, None)
    assert hold_joined({}, tmp_path / "none", None, shared=False) == ({}, None)


@pytest.mark.parametrize(
    "changed",
    [
        {"owner": 4242, "tables": ("0 4242 1\n",) * 2},  # the user's own, as the stranger's
        {"owner": 4242},
        {"parent": THIRD},
        {"tables": ("0 4242 1\n",) * 2},
        {"tables": ("0 100000 65536\n",) * 2},
        {"tables": (DRAWN, "0 0 4294967295\n")},
        {"tables": (DRAWN, f"0 {FIRST + SLOT} 65536\n")},
        {"tables": ("", "")},
        {"owners": {"ipc": THIRD}},
        {"cgroup": "0::/user.slice/user-4242.slice\n"},
        {"cgroup": f"0::/docker/{OTHER}\n"},
        {"cgroup": f"0::/docker/{PARTNER}0\n"},
        {"cgroup": f"0::/docker/{PARTNER} (deleted)\n"},
        {"cgroup": f"0::/user.slice/user-4242.slice/user@4242.service/docker-{PARTNER}.scope\n"},
        *({"cgroup": f"0::/user.slice/user@4242.service/x{end}0::/{PARTNER}\n"} for end in "\r\f\x1e\u2028"),
        {"cgroup": ""},
        {"user": HOST, "parent": None, "tables": ("0 0 4294967295\n",) * 2, "cgroup": "0::/user.slice\n"},
    ],
)
def test_no_namespace_of_anybody_else_is_joined(record, changed):
    with pytest.raises(NotListed, match="strict-"):
        hold_joined(joins("/proc/7/ns/ipc"), record, lambda *_: process(**changed), shared=False)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *[("/proc/7/ns/ipc", "network"), ("/proc/7/ns/net", "network"), ("/proc/7/ns/mnt", "mount")],
        *[("/proc/self/ns/ipc", "ipc"), ("/proc/7/task/7/ns/ipc", "ipc"), ("/proc/7/ns/user", "user")],
    ],
)
def test_what_the_engine_was_not_asked_for_is_not_joined(record, path, kind):
    with pytest.raises(NotListed, match="strict-namespaces"):
        hold_joined(joins(path, kind), record, lambda *_: process(), shared=False)


@pytest.mark.parametrize("text", [None, "{", "{}", '{"IpcMode": "container:name"}', '{"IpcMode": "shareable"}'])
def test_without_a_record_nothing_is_joined(record, text):
    record.unlink()
    if text is not None:
        record.write_text(text)
    with pytest.raises(NotListed, match="strict-namespaces"):
        hold_joined(joins("/proc/7/ns/ipc"), record, lambda *_: process(), shared=False)


def test_who_has_ended_is_not_joined(record):
    def opens(*_):
        raise ProcessLookupError(3, "No such process")

    with pytest.raises(NotListed, match=r"has ended \(No such process\)"):
        hold_joined(joins("/proc/7/ns/ipc"), record, opens, shared=False)


def test_cgroups_of_both_drivers_and_versions_are_known():
    for cgroup in (
        f"0::/system.slice/docker-{PARTNER}.scope\n",
        f"5:memory:/x\n1:name=systemd:/docker/{PARTNER}/a:b\n",
    ):
        assert refuse_strangers(process(cgroup=cgroup), {PARTNER}, shared=False).rows == read_ids(DRAWN).rows


def test_a_container_of_the_hosts_ids_gives_none():
    hosts = process(user=HOST, parent=None, tables=("0 0 4294967295\n",) * 2, owners={"ipc": HOST})
    assert refuse_strangers(hosts, {PARTNER}, shared=False) is None


# Its argument is a descriptor of a user namespace: a process in it, with a namespace of its own that belongs to it.
INSIDE = "exec nsenter --user=/proc/self/fd/{} unshare --ipc sh -c 'echo in; exec sleep 600'"


@pytest.fixture
def inside():
    """A process as a container's is."""
    ids = UserIds(((0, FIRST + 5 * SLOT, 65536),))
    namespace = open_user_namespace(ids)
    words = ["sh", "-c", INSIDE.format(namespace)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, pass_fds=[namespace]) as running:
        os.close(namespace)
        assert running.stdout.readline() == b"in\n"
        yield running
        running.kill()


def test_a_process_is_seen_as_it_is_and_held_over_its_end(inside):
    found = open_process(inside.pid, ["ipc", "network"])
    try:
        assert (found.owner, found.parent, found.owners) == (0, found.host, {"ipc": found.user})
        assert (found.user == found.host, [each.split() for each in found.tables]) == (
            False,
            [["0", str(FIRST + 5 * SLOT), "65536"]] * 2,
        )
        assert found.cgroup == Path("/proc/self/cgroup").read_text()
        assert sorted(found.held) == ["ipc", "network", "user"]
        inside.kill()
        inside.wait()
        # As the real runtime, which this process would become by now, does it.
        held = [f"--{kind}={held_path(found.held[kind])}" for kind in ("user", "ipc")]
        kept = {"pass_fds": list(found.held.values()), "capture_output": True}
        table = subprocess.run(["nsenter", *held, "cat", "/proc/self/uid_map"], check=True, **kept).stdout
        assert table.split() == [b"0", str(FIRST + 5 * SLOT).encode(), b"65536"]
        assert [os.get_inheritable(each) for each in found.held.values()] == [True] * 3
    finally:
        for descriptor in found.held.values():
            os.close(descriptor)


def test_a_namespace_that_a_user_made_is_the_users():
    words = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", "unshare", "-Uri"]
    with subprocess.Popen([*words, "sh", "-c", "echo in; exec sleep 600"], stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"in\n"
        found = open_process(running.pid, ["ipc"])
        running.kill()
    for descriptor in found.held.values():
        os.close(descriptor)
    assert (found.owner, found.tables[0].split()) == (4242, ["0", "4242", "1"])


def test_who_has_ended_cannot_be_opened():
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(FileNotFoundError):
        open_process(ended.pid, ["ipc"])


def test_a_name_with_a_carriage_return_ends_no_line(tmp_path):
    (tmp_path / "cgroup").write_bytes(b"0::/user@7.service/x\r0::/\xff\n")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_at(folder, "cgroup") == "0::/user@7.service/x\r0::/\udcff\n"
    finally:
        os.close(folder)
