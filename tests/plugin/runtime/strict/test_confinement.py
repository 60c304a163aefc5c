"""The filter of calls of a container that writes a path of the host: what each call may then be."""

import errno
import itertools

import pytest
from seccomp_rules import ALLOW, ERRNO, passes

from convgpu.runtime.strict.confinement import (
    CAPABILITIES,
    Unconfined,
    confine,
    with_engine_files_kept,
    without_capabilities,
    without_holds,
)

NAMES = ["read", "open", "openat", "openat2", "creat", "chmod", "fchmod", "fchmodat", "fchmodat2", "mknod", "mknodat"]
ACLS = ["setxattr", "lsetxattr", "fsetxattr", "setxattrat"]
ENGINES = {"defaultAction": ERRNO, "syscalls": [{"names": [*NAMES, *ACLS, "io_uring_setup"], "action": ALLOW}]}
OPEN, MAKE = 0o2, 0o102


@pytest.fixture
def seccomp():
    return confine({"linux": {"seccomp": ENGINES}})["linux"]["seccomp"]


@pytest.mark.parametrize("found", [None, {}, {"defaultAction": ALLOW}, {"defaultAction": "SCMP_ACT_LOG"}])
def test_a_filter_that_permits_what_it_does_not_name_is_refused(found):
    """A library that does not know `fchmodat2` or `setxattrat` cannot refuse them by name."""
    with pytest.raises(Unconfined):
        confine({"linux": {"seccomp": found}})


def test_no_acl_gives_a_setgid_file_its_right_to_execute(seccomp):
    """`chown` leaves the bit to a file that its group cannot execute."""
    rules = [rule for rule in seccomp["syscalls"] if set(rule["names"]) & {*ACLS}]
    assert rules == [{"names": ACLS, "action": ERRNO, "errnoRet": errno.EOPNOTSUPP}]


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6000, 0o4000])
def test_no_call_sets_a_setuid_bit(seccomp, mode):
    calls = [("chmod", 0, mode), ("fchmod", 3, mode), ("creat", 0, mode), ("mknod", 0, 0o100000 | mode)]
    calls += [("fchmodat", -100, 0, mode), ("fchmodat2", -100, 0, mode, 0), ("mknodat", -100, 0, mode)]
    calls += [("open", 0, MAKE, mode), ("openat", -100, 0, MAKE, mode), ("openat", -100, 0, 0o20200001, mode)]
    assert [call for call in calls if passes(seccomp, *call)] == []


def test_no_call_makes_a_device_and_none_is_left_whose_arguments_nobody_sees(seccomp):
    calls = [("mknod", 0, kind | 0o666) for kind in (0o020000, 0o060000)]
    calls += [("openat2", -100, 0, 0, 0), ("io_uring_setup", 8, 0)]
    assert [call for call in calls if passes(seccomp, *call)] == []


def test_other_modes_and_files_pass(seccomp):
    calls = [("chmod", 0, mode) for mode in (0, 0o644, 0o777, 0o1777)]
    calls += [("open", 0, OPEN, 0o7777), ("openat", -100, 0, OPEN, 0o4000), ("openat", -100, 0, MAKE, 0o1666)]
    calls += [("mknod", 0, kind | 0o600) for kind in (0, 0o100000, 0o010000, 0o140000)]
    assert [call for call in calls if not passes(seccomp, *call)] == []


def test_a_filter_permits_no_more_than_before():
    narrow = {"defaultAction": ERRNO, "syscalls": [{"names": ["read", "chmod"], "action": ALLOW, "args": [{}]}]}
    found = confine({"linux": {"seccomp": narrow}})["linux"]["seccomp"]
    permitted = set(itertools.chain.from_iterable(row["names"] for row in found["syscalls"] if row["action"] == ALLOW))
    assert permitted == {"read"}


@pytest.mark.parametrize("name", ["fcntl", "fcntl64"])
def test_no_lease_is_taken_and_all_else_of_fcntl_passes(name):
    engines = {"defaultAction": ERRNO, "syscalls": [{"names": ["read", name], "action": ALLOW}]}
    found = without_holds({"linux": {"seccomp": engines}})["linux"]["seccomp"]
    commands = [*range(64), *range(1024, 1056), 1 << 32 | 1, 1 << 32 | 1024]
    refused = [command for command in commands if not passes(found, name, 3, command)]
    assert refused == [1024, 1040, 1 << 32 | 1024]  # F_SETLEASE and F_SETDELEG
    assert passes(found, "read")
    other = next(each for each in ("fcntl", "fcntl64") if each != name)
    assert not passes(found, other, 3, 1)


def test_no_process_stops_at_the_exit_of_another_and_all_else_of_ptrace_passes():
    engines = {"defaultAction": ERRNO, "syscalls": [{"names": ["read", "ptrace"], "action": ALLOW}]}
    found = without_holds({"linux": {"seccomp": engines}})["linux"]["seccomp"]
    requests = [*range(0x200), *range(0x4200, 0x4240), *range(0x5000, 0x5010), 1 << 32 | 0x4200]
    refused = {
        data: [request for request in requests if not passes(found, "ptrace", request, 2, 0, data)]
        for data in (0, 0x1F, 0x3000BF, 0x7FFE3080, 0x40, 0x7F, 0x1000C0, 1 << 32 | 0x40)
    }
    sets_options = [21, 0x4200, 0x4206, 1 << 32 | 0x4200]
    assert refused == {data: sets_options if data & 0x40 else [] for data in refused}
    assert passes(found, "read")


def test_a_filter_that_refuses_ptrace_goes_on_to():
    engines = {"defaultAction": ERRNO, "syscalls": [{"names": ["read"], "action": ALLOW}]}
    found = without_holds({"linux": {"seccomp": engines}})["linux"]["seccomp"]
    assert not passes(found, "ptrace", 0, 0, 0, 0)


@pytest.mark.parametrize("found", [None, {"defaultAction": ALLOW}])
def test_a_container_without_a_filter_stays_as_it_is(found):
    assert without_holds({"linux": {"seccomp": found}}) == {"linux": {"seccomp": found}}


def test_capabilities_that_mark_files_go():
    sets = {"bounding": ["CAP_CHOWN", *CAPABILITIES], "effective": ["CAP_MKNOD"], "ambient": None}
    config = {"process": {"capabilities": sets}, "linux": {"seccomp": ENGINES}}
    assert confine(config)["process"]["capabilities"] == {
        "bounding": ["CAP_CHOWN"],
        "effective": [],
        "ambient": [],
    }
    assert without_capabilities({}, CAPABILITIES) == {}


OWN = "/var/lib/docker/containers/" + "0a" * 32


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        *((f"{OWN}/{name}", True) for name in ("hosts", "hostname", "resolv.conf")),
        (f"{OWN}/mounts/shm", False),
        (f"{OWN}/../hosts", False),
        ("/srv/data/hosts", False),
        ("/var/lib/docker/volumes/v/_data", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("options", [["rbind", "rprivate"], ["rw", "rbind"], None])
def test_what_the_engine_writes_for_a_container_it_cannot_write(
    source: str | None, kept: bool, options: list[str] | None
) -> None:
    mount = {"destination": "/etc/hosts", "source": source, "options": options}
    [found] = with_engine_files_kept({"mounts": [mount]}, "/var/lib/docker")["mounts"]
    if kept:
        assert found == {**mount, "options": [*(each for each in options or () if each != "rw"), "ro"]}
    else:
        assert found == mount
