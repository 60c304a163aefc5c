"""`convgpu policy write`: what it writes parses, and permits what it was made from."""

import json
import tomllib
from pathlib import Path

import pytest
import strict_site
from engine_says import HOOK, NEW_ENGINE, OURS, inspected

from convgpu.authz.facts.need_notes import MAX_NOTES, NeedNotes, read_notes
from convgpu.authz.site.rules import parse_rules
from convgpu.cli.connect.engine import EngineRefused
from convgpu.cli.setup.strict.seen import last_seen, read_what_ran

NOW = 1_800_000_000.0
INFO = {
    "DockerRootDir": "/var/lib/docker",
    "DefaultRuntime": "runc",
    "ServerVersion": "28.5.2",
    "SecurityOptions": ["name=cgroupns"],
    "LoggingDriver": "json-file",
}


class AnEngine:
    """Answers as `Engine.get` does, from dictionaries."""

    def __init__(self, containers, go="go1.27.1"):
        self.info = INFO
        self.containers = containers
        self.version = {"GoVersion": go}

    def get(self, path, **_query):
        if path == "/version":
            return self.version
        if path == "/containers/json":
            return [{"Id": name, "State": "exited"} for name in self.containers]
        name = path.split("/")[2]
        if path.startswith("/containers/") and name in self.containers:
            return self.containers[name]
        raise EngineRefused(404, "no such thing")


def container(name, host=None, mounts=(), ended="2027-01-14T10:00:00.123456789Z", **config):
    state = {"Running": False, "FinishedAt": ended, "Status": "exited"}
    found = {**inspected(host, config.pop("Env", ()), mounts, **config), "Name": f"/{name}", "State": state}
    return {**found, "Id": name}


def bind(source, *, writable=True):
    return {"Type": "bind", "Source": source, "Destination": "/x", "RW": writable}


RAN = {
    "plain": container("plain"),
    "database": container("database", {"Runtime": "convgpu"}, (bind("/srv/db"), bind("/srv/conf", writable=False))),
    "vpn": container(
        "vpn",
        {
            "CapAdd": ["NET_ADMIN"],
            "Devices": [{"PathOnHost": "/dev/net/tun"}],
            "NetworkMode": "host",
            "Sysctls": {"net.ipv4.ip_forward": "1"},
            "RestartPolicy": {"Name": "always"},
            "SecurityOpt": ["seccomp=unconfined", 'seccomp={"x": "' + "y" * 100 + '"}'],
            "CgroupParent": "/vpn",
        },
    ),
    "sidecar": container("sidecar", {"NetworkMode": "container:vpn", "LogConfig": {"Type": "syslog"}}),
    "odd": container("odd\nname = 1", {"NewField": True, "MaskedPaths": []}, (bind('/srv/"quoted"\\ ü'),)),
}


def ran(containers, directory=None, since=NOW - 21 * 86400):
    return read_what_ran(AnEngine(containers), "convgpu", directory, "", since)


@pytest.fixture
def judge(harness):
    def passes(containers, text):
        harness.rules = parse_rules(text)
        harness.engine.more = dict(NEW_ENGINE)
        harness.engine.containers = dict(containers)
        harness.scheduler.limits["mine"] = 1 << 30
        return {name: harness.judge(b"", f"/v1.41/containers/{name}/start").rule for name in containers}

    return passes


def test_what_it_was_made_from_passes_and_nothing_else(judge):
    limited = container("trainer", {"DeviceRequests": [{"Count": -1}]}, (OURS,), Env=[HOOK])
    containers = {**RAN, "trainer": limited}
    text = ran(containers).as_toml()
    assert judge(containers, text) == {**dict.fromkeys(RAN, "no-gpu"), "trainer": "limited"}
    more = {
        "more": container("more", {"CapAdd": ["NET_ADMIN", "SYS_TIME"]}),
        "writes": container("writes", mounts=(bind("/srv/conf"),)),
    }
    assert judge(more, text) == {"more": "strict-capabilities", "writes": "strict-paths"}


def test_an_engine_on_which_no_container_would_start_is_named():
    old = read_what_ran(AnEngine(RAN, go="go1.19.8"), "convgpu", None, "", NOW - 21 * 86400)
    assert [each.partition(":")[0] for each in old.problems] == ["no container starts"]
    assert f"\n# As it stands, {old.problems[0]}\n" in old.as_toml()
    assert (old.refused, ran(RAN).problems) == ([], [])


def test_each_line_says_who_needed_it():
    text = ran(RAN).as_toml()
    assert '    "/srv/conf:ro",  # database\n' in text
    assert '    "network=container",  # sidecar\n' in text
    assert '    "seccomp=custom",  # vpn\n' in text
    assert "# odd?name = 1\n" in text
    assert tomllib.loads(text)["strict"]["capabilities"] == ["NET_ADMIN"]


def test_what_no_list_permits_is_named_and_permits_nothing():
    bad = {
        "root": container("root", {"Privileged": True}, (bind("/srv/secret"),)),
        "gpu": container("gpu", {"DeviceRequests": [{"Count": -1}]}),
    }
    found = ran(bad)
    assert [(name, refusal.rule) for name, refusal in found.refused] == [
        ("root", "privileged"),
        ("gpu", "gpu-needs-limit"),
    ]
    assert "# root: privileged\n# gpu: gpu-needs-limit\n" in found.as_toml()
    assert "/srv/secret" not in found.as_toml()
    assert json.loads(json.dumps(found.as_data()))["refused"][1]["container"] == "gpu"


@pytest.mark.parametrize("name", strict_site.INNOCENTS)
def test_a_list_that_is_made_of_a_container_passes_it(judge, name):
    host = {key: value for key, value in strict_site.INNOCENTS[name].items() if key not in {"Binds", "Mounts"}}
    containers = {"c": container("c", host)}
    assert judge(containers, ran(containers).as_toml()) == {"c": "no-gpu"}


def test_what_ended_before_is_left_out():
    old = {"old": container("old", {"CapAdd": ["SYS_TIME"]}, ended="2026-01-01T00:00:00Z")}
    assert (ran(old).containers, ran(old, since=0).containers) == (0, 1)
    assert last_seen({"State": {"Running": True}}) == float("inf")
    assert last_seen({"State": {"FinishedAt": "0001-01-01T00:00:00Z"}, "Created": "2026-01-01T00:00:00.5Z"}) > 1e9
    assert last_seen({"State": {"FinishedAt": "never"}}) == 0


def test_what_is_gone_counts_by_what_authorization_noted(harness, tmp_path: Path, judge):
    now = NOW
    notes = NeedNotes(tmp_path / "needs.json", lambda: now)
    notes.add([("paths", "/srv/gone"), ("capabilities", "SYS_NICE")], "gone")
    notes.add([("paths", "/srv/gone")], "again")
    found = ran({}, tmp_path)
    assert found.needs["paths"] == {"/srv/gone": ["gone", "again"]}
    assert ran({}, tmp_path, since=NOW + 1).needs["paths"] == {}
    gone = {"gone": container("gone", {"CapAdd": ["SYS_NICE"]}, (bind("/srv/gone"),))}
    assert judge(gone, found.as_toml()) == {"gone": "strict-runtimes"}
    assert harness.rules.strict.paths == ("/srv/gone",)


def test_notes_are_bounded_and_a_broken_file_is_none(tmp_path: Path):
    file = tmp_path / "needs.json"
    now = 0.0
    notes = NeedNotes(file, lambda: now)
    notes.add([("paths", "/" + "x" * 400)], "long")
    assert not file.exists()
    now = 1.0
    notes.add([("paths", f"/{number}") for number in range(MAX_NOTES)], "many")
    now = 2.0
    notes.add([("paths", "/last")], "last")
    kept = read_notes(file)
    assert (len(kept), ("paths", "/last") in kept) == (MAX_NOTES, True)
    before = file.stat().st_mtime_ns
    notes.add([("paths", "/last")], "last")
    assert file.stat().st_mtime_ns == before
    for name in "abcd":
        notes.add([("paths", "/last")], name)
    assert read_notes(file)["paths", "/last"].names == ("b", "c", "d")
    file.write_text('[{"section": 1}]')
    assert read_notes(file) == {}


def test_a_start_is_noted(harness):
    noted = []

    class Notes:
        def add(self, needs, name):
            noted.append((name, list(needs)))

    harness.notes = Notes()
    harness.start(container("database", {"CapAdd": ["NET_ADMIN"]}, (bind("/srv/db"),)))
    assert noted == [("database", [("capabilities", "NET_ADMIN"), ("paths", "/srv/db"), ("runtimes", "runc")])]


def test_who_mounts_by_v_below_what_another_writes_is_to_be_made_again(judge):
    """The Engine would make the folder, as root and by its name, where the other container exchanges names."""
    below = bind("/srv/db/below")
    asked = {"Mounts": [{"Type": "bind", "Source": "/srv/db/below", "Target": "/x"}], "Runtime": "convgpu"}
    containers = {
        "writes": container("writes", {"Runtime": "convgpu"}, (bind("/srv/db"),)),
        "by-v": container("by-v", {"Runtime": "convgpu"}, (below,)),
        "by-mount": container("by-mount", asked, (below,)),
    }
    found = ran(containers)
    assert (found.remade, found.refused, found.as_data()["remade"]) == (["by-v"], [], ["by-v"])
    text = found.as_toml()
    assert "Make them again with --mount type=bind:\n# by-v\n" in text
    assert judge(containers, text) == {"writes": "no-gpu", "by-v": "strict-paths", "by-mount": "no-gpu"}
