"""Strict rules of paths: what the Engine would do with them by name, as root, and what refusals tell of the host."""

import pytest
import strict_site
from engine_says import inspected

from convgpu.authz.site.rules import parse_rules

DATA, TOOLS = strict_site.DATA, strict_site.TOOLS
CREATES = {"BindOptions": {"CreateMountpoint": True}}


def bind(source, **more):
    return strict_site.mount("bind", source, **more)


def create(harness, host):
    return harness.judge({"Image": "i", "HostConfig": host})


# The Engine makes these if they are missing, and users write the folder in which it would.
MADE = {
    "below the entry": {"Binds": [f"{DATA}/new:/x"]},
    "read-only": {"Binds": [f"{DATA}/new:/x:ro"]},
    "spelt otherwise": {"Binds": [f"/{DATA}/./new/:/x"]},
    "mount": bind(f"{DATA}/new", **CREATES),
    "mount read-only": bind(f"{DATA}/new", ReadOnly=True, **CREATES),
    "link of a user to an entry": {"Binds": [f"{DATA}/link:/x"]},
    "below a read-only entry, in a folder of a user": {"Binds": [f"{TOOLS}/eve/new:/x:ro"]},
}
NOT_MADE = {
    "entry": {"Binds": [f"{DATA}:/x"]},
    "entry read-only": {"Binds": [f"{DATA}/:/x:ro"]},
    "read-only entry": {"Binds": [f"{TOOLS}:/x:ro"]},
    "below a read-only entry": {"Binds": [f"{TOOLS}/bin/new:/x:ro"]},
    "file": {"Binds": ["/etc/passwd:/x:ro"]},
    "mount of the entry": bind(DATA, **CREATES),
    "mount": bind(f"{DATA}/new"),
    "mount of a link": bind(f"{DATA}/link"),
    "said not": bind(f"{DATA}/new", BindOptions={"CreateMountpoint": False}),
}


@pytest.fixture
def host(strict):
    strict.devices.of_users = {f"{TOOLS}/eve"}
    strict.devices.links = {f"{DATA}/link": DATA}
    return strict


@pytest.mark.parametrize("name", MADE)
def test_the_engine_makes_no_source_where_users_write(host, name):
    """It sets mode and owner of what it finds by that name: a user put a link there."""
    verdict = create(host, MADE[name])
    assert (verdict.rule, "the Engine would make" in verdict.message) == ("strict-paths", True), verdict
    host.rules = parse_rules("")
    assert create(host, MADE[name]).allow


@pytest.mark.parametrize("name", NOT_MADE)
def test_sources_that_the_engine_does_not_make_there(host, name):
    assert create(host, NOT_MADE[name]).rule == "no-gpu"


def test_the_refusal_says_what_to_type(host):
    assert create(host, {"Binds": [f"{DATA}/new:/x:ro"]}).message == (
        f"strict-paths: the Engine would make {DATA}/new if it is missing, as root and by its name, where users can "
        f"exchange names.\nMake the folder, and say --mount type=bind,source={DATA}/new,target=/x,readonly in place of "
        "-v (docker compose: `bind: {create_host_path: false}` in the long form of the volume)."
    )


def test_an_entry_inside_of_a_writable_one(host):
    for inner in (f"{DATA}/inner", f"{DATA}/inner:ro"):
        host.rules = parse_rules(strict_site.RULES.replace(f'"{DATA}"', f'"{DATA}", "{inner}"'))
        assert create(host, {"Binds": [f"{DATA}/inner:/x:ro"]}).rule == "strict-paths"
        assert create(host, bind(f"{DATA}/inner")).allow


def row(source, *, writable=True):
    return {"Type": "bind", "Source": source, "Destination": "/x", "RW": writable}


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"Binds": [f"{DATA}/new:/x"]}, "strict-paths"),
        (bind(f"{DATA}/new", **CREATES), "strict-paths"),
        ({"VolumesFrom": ["other"]}, "strict-paths"),
        (bind(f"{DATA}/new"), "no-gpu"),
    ],
)
def test_a_container_that_was_made_before(host, asked, rule):
    """It does not start; the Engine does nothing at other calls about it."""
    container = inspected({"Runtime": "convgpu", **asked}, mounts=(row(f"{DATA}/new"),))
    assert host.start(container).rule == rule
    assert host.judge({"Cmd": ["sh"]}, "/v1.41/containers/c/exec").allow
    update = "/v1.41/containers/c/update"
    assert host.judge({"Memory": 1, "RestartPolicy": {"Name": "no"}}, update).allow
    assert host.judge({"RestartPolicy": {"Name": "always"}}, update).allow is (rule == "no-gpu")


@pytest.mark.parametrize("name", [name for name in NOT_MADE if name.startswith(("mount", "said"))])
def test_what_the_engine_does_not_make_may_be_missing(host, name):
    """The Engine's own answer says so."""
    host.devices.missing = {DATA, f"{DATA}/new"} - ({DATA} if "entry" in name else set())
    assert create(host, NOT_MADE[name]).allow


MISSING = {
    "below a read-only entry": {"Binds": [f"{TOOLS}/bin/new:/x:ro"]},
    "spelt otherwise": {"Binds": [f"/{TOOLS}/./bin//new/:/x:ro"]},
    "link": {"Binds": [f"{TOOLS}/link:/x:ro"]},
    "mount": bind(f"{TOOLS}/bin/new", ReadOnly=True, **CREATES),
    "read-only entry": {"Binds": [f"{TOOLS}/gone:/x:ro"]},
}


@pytest.mark.parametrize("name", MISSING)
def test_the_engine_makes_no_source_below_a_read_only_entry(host, name):
    """Where nobody but root exchanges names, what is there now is there when it starts."""
    host.devices.links[f"{TOOLS}/link"] = f"{TOOLS}/bin/new"
    assert create(host, MISSING[name]).allow
    host.devices.missing = {f"{TOOLS}/bin/new", f"{TOOLS}/gone"}
    verdict = create(host, MISSING[name])
    assert (verdict.rule, "is not there, and the Engine would make it" in verdict.message) == ("strict-paths", True)
    host.rules = parse_rules("")
    assert create(host, MISSING[name]).allow


@pytest.mark.parametrize("path", ["/root/x", f"{TOOLS}/link", f"{TOOLS}/eve/x", f"{DATA}/x"])
def test_the_refusal_of_what_is_missing_is_no_oracle(host, path):
    """What the list does not cover, or users write, is refused in the same words whether it is there or not."""
    host.devices.links[f"{TOOLS}/link"] = "/root/x"
    there = create(host, {"Binds": [f"{path}:/x:ro"]})
    host.devices.missing = {path, "/root/x"}
    assert (create(host, {"Binds": [f"{path}:/x:ro"]}), there.allow) == (there, False)


def test_a_container_whose_source_is_missing_starts_no_more(host):
    container = inspected({"Runtime": "convgpu"}, mounts=(row(f"{TOOLS}/bin/new", writable=False),))
    update = "/v1.41/containers/c/update"
    for missing in (False, True):
        host.devices.missing = {f"{TOOLS}/bin/new"} if missing else set()
        assert host.start(container).allow is not missing
        assert host.judge({"RestartPolicy": {"Name": "always"}}, update).allow is not missing
        assert host.judge({"Cmd": ["sh"]}, "/v1.41/containers/c/exec").allow


# The Engine sets labels of SELinux on all that lies there, by name and as root: `Relabel` in its volume/mounts.
LABELLED = {
    "shared": {"Binds": [f"{DATA}:/x:z"]},
    "private": {"Binds": [f"{DATA}:/x:Z"]},
    "in front": {"Binds": [f"{TOOLS}:/x:Z,ro"]},
    "behind": {"Binds": [f"{TOOLS}:/x:ro,Z"]},
    "among others": {"Binds": [f"{TOOLS}:/x:ro,z,rslave"]},
    "volume": {"Binds": ["mine:/x:z,nocopy"]},
    "of others": {"VolumesFrom": ["c:z"]},
    "of others, private": {"VolumesFrom": ["c:ro,Z"]},
}
UNLABELLED = {
    "path": {"Binds": [f"{DATA}:/x:rw,rprivate,consistent"]},
    "volume": {"Binds": ["zZ:/z:nocopy"]},
    "of others": {"VolumesFrom": ["z:ro"]},
    "mount": bind(DATA),
}
# By default, of the Engine's own volumes, where it sets labels at all.
IMPLIED = {
    "mount of a volume": strict_site.mount("volume", "mine", VolumeOptions={"NoCopy": True}),
    "mount of a volume of driver local": strict_site.local(),
    "without a name": {"Binds": ["/x"]},
}


@pytest.mark.parametrize("name", LABELLED)
def test_the_engine_sets_no_labels_by_name(strict, name):
    verdict = create(strict, LABELLED[name])
    assert (verdict.rule, "Leave z and Z out" in verdict.message) == ("strict-fields", True), verdict
    strict.rules = parse_rules(strict_site.RULES + 'fields = ["relabel"]')
    assert create(strict, LABELLED[name]).allow
    strict.rules = parse_rules("")
    assert create(strict, LABELLED[name]).allow


def test_who_asks_for_no_labels(strict):
    for selinux in (False, True):
        strict.engine.more["labels"] = selinux
        assert [name for name, asked in UNLABELLED.items() if not create(strict, asked).allow] == []
        verdicts = [create(strict, asked) for asked in IMPLIED.values()]
        assert [each.allow for each in verdicts] == [not selinux] * 3
        assert all(each.allow or ":nocopy" in each.message for each in verdicts)
    strict.rules = parse_rules("")
    assert all(create(strict, asked).allow for asked in IMPLIED.values())


@pytest.mark.parametrize(
    ("binds", "shown", "selinux", "passes"),
    [
        ([f"{DATA}:/x:z"], row(DATA) | {"Mode": "z"}, False, False),
        ([], row(DATA) | {"Mode": "ro,Z"}, False, False),
        ([f"{DATA}:/x"], row(DATA) | {"Mode": ""}, True, True),
        (["v:/x:z"], row("v") | {"Type": "volume", "Name": "v", "Driver": "local", "Mode": "z"}, False, False),
        (["v:/x"], row("v") | {"Type": "volume", "Name": "v", "Driver": "local", "Mode": "z"}, False, True),
        (["v:/x"], row("v") | {"Type": "volume", "Name": "v", "Driver": "local", "Mode": "z"}, True, False),
        (["v:/x:nocopy"], row("v") | {"Type": "volume", "Name": "v", "Driver": "local", "Mode": "nocopy"}, True, True),
    ],
)
def test_a_container_that_asked_for_labels_starts_no_more(strict, binds, shown, selinux, passes):
    strict.engine.more["labels"] = selinux
    container = inspected({"Runtime": "convgpu", "Binds": binds}, mounts=(shown,))
    assert strict.start(container).allow is passes
    assert strict.judge({"Cmd": ["sh"]}, "/v1.41/containers/c/exec").allow
    update = "/v1.41/containers/c/update"
    assert strict.judge({"RestartPolicy": {"Name": "always"}}, update).allow is passes


UPWARDS = {
    "bind": ({"Binds": [f"/root/x/../..{TOOLS}:/x:ro"]}, "strict-paths"),
    "mount": (bind(f"/root/x/../..{TOOLS}", ReadOnly=True), "strict-paths"),
    "at its end": (bind(f"{DATA}/x/.."), "strict-paths"),
    "device": (strict_site.device("/root/x/../../dev/fuse"), "strict-devices"),
    "device of the root folder": (strict_site.device("dev/../dev/fuse"), "strict-devices"),
}


@pytest.mark.parametrize("name", UPWARDS)
def test_upwards_is_no_part_of_a_path(strict, name):
    """The Engine looked up /root/x as root, and its answer told whether that is there."""
    asked, rule = UPWARDS[name]
    verdict = create(strict, asked)
    assert (verdict.rule, "has `..` in it" in verdict.message) == (rule, True), verdict
    assert create(strict, bind(f"{DATA}/a..b/...")).allow


@pytest.mark.parametrize("leads", ["/root/x", "/var/log/secret", "/etc/docker/x", "/run/docker.sock", "/dev/nvidia0"])
def test_a_refusal_does_not_tell_where_a_link_leads(strict, leads):
    """The log does."""
    strict.devices.links = {"/root/x": leads}
    told = {
        "bind": ({"Binds": ["/root/x:/x"]}, "paths", "the mount of /root/x"),
        "mount": (bind("/root/x"), "paths", "the mount of /root/x"),
        "device": (strict_site.device("/root/x"), "devices", "--device /root/x"),
    }
    for asked, section, shown in told.values():
        verdict = create(strict, asked)
        entry = f"Leave it out, or ask the administrator for an entry: {section} = ['/root/x']"
        assert verdict.message == f"strict-{section}: {shown} is not in the list of this site.\n{entry}"
        assert verdict.detail == ("" if leads == "/root/x" else f"it leads to {leads}")
    volume = {"type": "none", "o": "bind", "device": "/root/x"}
    for verdict in (
        create(strict, strict_site.local(**volume)),
        strict.judge({"Name": "v", "DriverOpts": volume}, "/v1.41/volumes/create"),
    ):
        assert (verdict.rule, leads in verdict.message) == ("strict-volumes", leads == "/root/x")


TMPFS = ("bind", "rbind", "remount", "move", "shared", "rslave", "private", "unbindable", "of-tomorrow")


@pytest.mark.parametrize("option", TMPFS)
def test_options_that_make_another_mount_of_a_tmpfs(strict, option):
    for asked in (
        {"Tmpfs": {"/x": f"size=1m,{option}"}},
        strict_site.mount("tmpfs", "", TmpfsOptions={"Options": [["size", "1m"], [option]]}),
    ):
        assert create(strict, asked).rule == "strict-fields"
    strict.rules = parse_rules("")
    assert create(strict, {"Tmpfs": {"/x": option}}).allow


@pytest.mark.parametrize("option", ["move", " bind", "remount", "of-tomorrow=1"])
def test_odd_options_of_a_volume_that_is_a_tmpfs(strict, option):
    options = {"type": "tmpfs", "device": "/dev", "o": f"size=1m,{option}"}
    assert create(strict, strict_site.local(**options)).rule == "strict-fields"
    assert strict.judge({"Name": "v", "DriverOpts": options}, "/v1.41/volumes/create").rule == "strict-fields"
    options["o"] = "size=1m,mode=700"
    assert create(strict, strict_site.local(**options)).allow
    assert strict.judge({"Name": "v", "DriverOpts": options}, "/v1.41/volumes/create").allow


@pytest.mark.parametrize(
    ("option", "passes"),
    [
        ("no-new-privileges", True),
        ("no-new-privileges=true", True),
        ("no-new-privileges:true", True),
        ("no-new-privileges=false", False),
        ("no-new-privileges:false", False),
        ("no-new-privileges=0", False),
    ],
)
def test_what_the_engine_has_by_default_is_not_undone(strict, option, passes):
    assert create(strict, {"SecurityOpt": [option]}).allow == passes


def test_options_of_a_tmpfs(strict):
    for options in ("", "rw,noexec,nosuid,size=1m", "mode=1777,uid=0,gid=0,exec,suid,dev"):
        assert create(strict, {"Tmpfs": {"/x": options}}).allow


@pytest.mark.parametrize(
    "asked",
    [
        strict_site.mount("image", "any"),
        strict_site.mount("image", "any", ImageOptions={"Subpath": "link"}),
        strict_site.mount("volume", "mine", VolumeOptions={"NoCopy": True, "Subpath": "link"}),
        strict_site.mount("volume", "mine", VolumeOptions={"NoCopy": True, "subPATH": "link"}),
    ],
)
def test_parts_of_volumes_and_images_in_which_the_engine_would_follow_links(strict, asked):
    """It looks on the host, as root, and its answer tells what is there; the runtime refuses too late."""
    assert create(strict, asked).rule == "strict-fields"
