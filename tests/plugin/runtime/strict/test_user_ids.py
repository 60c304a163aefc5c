"""A container under strict rules has user IDs of its own, and the mounts that its namespaces permit."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from convgpu.runtime.strict.idmap import open_user_namespace, read_overlay
from convgpu.runtime.strict.user_ids import (
    END,
    FIRST,
    SLOT,
    WRITERS,
    UserIds,
    choose_ids,
    first_free,
    is_remapped,
    read_ids,
    with_ids,
)

HOST = "         0          0 4294967295\n"
OWN = [{"type": name} for name in ("mount", "network", "pid", "ipc", "uts")]
IDS = UserIds(((0, FIRST, 65536),))


def row(inside, kernel, count):
    return f"{inside:10} {kernel:10} {count:10}\n"


def drawn(tables, at, *, writes=False, reserve=lambda _: os.open("/", os.O_PATH)):
    kept = []

    def held(first):
        found = reserve(first)
        kept.append(found)
        return found

    try:
        return first_free(lambda: tables, lambda below: at % below, held, writes=writes)
    finally:
        for each in kept:
            with suppress(OSError, TypeError):
                os.close(each)


def test_ids_are_those_that_no_process_has():
    taken = [HOST, row(0, FIRST, 65536), row(0, 100000, 65536) + row(70000, FIRST + SLOT + 65536, 1)]
    assert drawn(taken, 0) == FIRST + 2 * SLOT
    assert drawn([HOST], -1) == WRITERS - SLOT
    half = [row(0, FIRST, WRITERS - FIRST - SLOT)]
    assert drawn(half, -1) == WRITERS - SLOT
    with pytest.raises(ValueError, match="taken"):
        drawn([*half, row(5, WRITERS - 1, 1)], 0)


def test_ids_that_another_start_has_reserved_are_left_to_it():
    def reserve(first):
        return None if first < FIRST + 3 * SLOT else os.open("/", os.O_PATH)

    assert drawn([HOST], 0, reserve=reserve) == FIRST + 3 * SLOT
    with pytest.raises(ValueError, match="taken"):
        drawn([HOST], 0, reserve=lambda _: None)


def test_processes_are_looked_at_while_ids_are_reserved():
    """Else a start that ends between the look and the reservation has the same ones."""
    done = []

    def tables():
        done.append("look")
        return [HOST, row(0, FIRST, 65536)]

    kept = []

    def reserve(first):
        done.append((first - FIRST) // SLOT)
        kept.append(os.open("/", os.O_PATH))
        return kept[-1]

    assert first_free(tables, lambda _: 0, reserve) == FIRST + SLOT
    assert done == [0, "look", 1, "look"]
    os.close(kept[1])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(kept[0])  # given back, as its range was not free


def test_who_writes_paths_of_the_host_has_ids_by_which_nobody_made_setuid_files():
    assert [drawn([HOST], at, writes=True) for at in (0, -1)] == [WRITERS, END - SLOT]
    assert [choose_ids({}, first).may_write for first in (FIRST, WRITERS - SLOT, WRITERS, END - SLOT)] == [
        *(False, False, True, True)
    ]
    with pytest.raises(ValueError, match="taken"):
        drawn([row(0, WRITERS, END - WRITERS)], 0, writes=True)


def test_ids_that_a_container_names_are_mapped_as_well():
    user = {"uid": 100500, "gid": 100, "additionalGids": [70000, 33]}
    ids = choose_ids({"process": {"user": user}}, FIRST)
    assert ids.rows == ((0, FIRST, 65536), (70000, FIRST + 65536, 1), (100500, FIRST + 65537, 1))
    assert [ids.kernel_id(each) for each in (0, 33, 70000, 100500, 99999)] == [
        *(FIRST, FIRST + 33, FIRST + 65536, FIRST + 65537),
        FIRST,  # it has none: its root's
    ]
    assert max(kernel + count for _, kernel, count in ids.rows) <= FIRST + SLOT


def test_the_table_of_ids_is_one_that_the_kernel_takes():
    most = choose_ids({"process": {"user": {"additionalGids": [2**32 - 2 - each for each in range(128)]}}}, END - SLOT)
    assert len(most.text) < 4096
    os.close(open_user_namespace(most))
    with pytest.raises(ValueError, match="at most 128"):
        choose_ids({"process": {"user": {"additionalGids": [70000 + each for each in range(129)]}}}, FIRST)


def test_the_hosts_ids_are_nobodys_own():
    assert read_ids(HOST) is None
    assert read_ids("") is None
    assert read_ids(row(0, FIRST, 65536), "/proc/7/ns/user") == UserIds(IDS.rows, "/proc/7/ns/user")


def test_ids_are_drawn_if_they_are_a_whole_range():
    most = choose_ids({"process": {"user": {"uid": 100500, "additionalGids": [70000, 2**31]}}}, END - SLOT)
    assert [ids.is_drawn for ids in (IDS, most)] == [True, True]
    others = [
        *(((0, 4242, 1),), ((0, FIRST, 65535),), ((0, FIRST + 1, 65536),), ((1, FIRST, 65536),), ((0, END, 65536),)),
        *(((0, FIRST - SLOT, 65536),), ((0, FIRST, 65536), (70000, 0, 1)), ((0, FIRST, 65536), (70000, FIRST, 1))),
        *(((0, FIRST, 65536), (70000, FIRST + 65536, 2)), ((0, FIRST, 65536), (70000, FIRST + SLOT, 1))),
    ]
    assert [rows for rows in others if UserIds(rows).is_drawn] == []


def test_a_container_gets_a_user_namespace():
    sysctls = {"net.ipv4.ping_group_range": "0 2147483647", "kernel.domainname": "lab", "a": "b"}
    config = {"linux": {"namespaces": OWN, "sysctl": sysctls}}
    made = with_ids(config, IDS)
    assert made["domainname"] == "lab"  # as a sysctl root of the host alone writes it, and nothing started
    linux = made["linux"]
    rows = [{"containerID": 0, "hostID": FIRST, "size": 65536}]
    assert (linux["uidMappings"], linux["gidMappings"]) == (rows, rows)
    assert linux["namespaces"] == [*OWN, {"type": "user"}]
    assert linux["sysctl"] == {"net.ipv4.ping_group_range": "0 65535", "a": "b"}
    assert (is_remapped(config), is_remapped({"linux": linux})) == (False, True)


def places(namespaces, ids=IDS):
    kinds = {"sysfs": "/sys", "proc": "/proc", "mqueue": "/dev/mqueue", "tmpfs": "/dev"}
    mounts = [{"type": kind, "source": kind, "destination": place} for kind, place in kinds.items()]
    made = with_ids({"linux": {"namespaces": namespaces}, "mounts": mounts}, ids)["mounts"]
    return sorted(mount["source"] for mount in made if mount["type"] == "bind")


def test_of_a_namespace_that_is_not_its_own_it_gets_the_file_system_that_is_there():
    assert places(OWN) == []
    assert places([each for each in OWN if each["type"] != "network"]) == ["/sys"]
    hosts = [each for each in OWN if each["type"] not in {"ipc", "pid"}]
    assert places([*hosts, {"type": "ipc", "path": "/proc/./7/fd/8"}]) == ["/dev/mqueue", "/proc"]


def test_who_joins_a_container_has_its_ids():
    joined = [*OWN[2:], {"type": "network", "path": "/proc/./7/fd/8"}]
    ids = UserIds(IDS.rows, "/proc/./7/fd/9")
    made = with_ids({"linux": {"namespaces": joined}}, ids)["linux"]["namespaces"]
    assert made[-1] == {"type": "user", "path": "/proc/./7/fd/9"}
    assert places([*OWN[2:], OWN[0], joined[-1]], ids) == []


@pytest.mark.parametrize(
    ("options", "lower", "kept"),
    [
        ("rw,lowerdir=/d/l/A:/d/l/B,upperdir=/d/c/diff,workdir=/d/c/work,index=off", ["/d/l/A", "/d/l/B"], "index=off"),
        ("rw,lowerdir=l/A:l/B,upperdir=/d/c/diff,workdir=/d/c/work", ["/d/l/A", "/d/l/B"], ""),
        ("rw,lowerdir+=/d/A,lowerdir+=/d/B,upperdir=/d/c/fs,workdir=/d/c/work,volatile", ["/d/A", "/d/B"], ""),
        (r"rw,lowerdir=/d/a\:b:/d/c,upperdir=/d/c/diff,userxattr", ["/d/a:b", "/d/c"], "userxattr"),
    ],
)
def test_the_layers_of_a_container_are_read(options, lower, kept):
    found = read_overlay(options)
    assert (list(found.lower), ",".join(found.options)) == (lower, kept)


def test_what_nobody_writes_is_no_containers():
    assert read_overlay("ro,lowerdir=/a:/b") is None


def test_a_namespace_with_ids_is_opened_and_leaves_no_process():
    before = len(list(Path("/proc/self/fd").iterdir()))
    descriptor = open_user_namespace(IDS)
    enter = ["nsenter", f"--user=/proc/{os.getpid()}/fd/{descriptor}", "cat", "/proc/self/uid_map"]
    table = subprocess.run(enter, capture_output=True, text=True, check=True, timeout=60).stdout
    os.close(descriptor)
    assert table.split() == ["0", str(FIRST), "65536"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
