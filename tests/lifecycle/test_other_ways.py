"""Calls other than create that would undo a limit: each works without authorization, and none with it."""

import io
import tarfile
from urllib.parse import quote

import bypasses
import pytest
from docker_engine import version
from raw_engine import Call, RawEngine

pytestmark = pytest.mark.engine

PLAIN = {"Image": bypasses.IMAGE, "Cmd": ["sleep", "600"], "StopSignal": "KILL", "HostConfig": {"NetworkMode": "none"}}
LIMITED = {**PLAIN, "Env": [bypasses.HOOK], "HostConfig": {"NetworkMode": "none", "Mounts": [bypasses.OURS]}}


@pytest.fixture(scope="module")
def raw(engine, plugin):  # noqa: ARG001
    engine.configure({"authorization-plugins": []})
    return RawEngine(f"{engine.directory}/docker.sock")


@pytest.fixture(scope="module")
def plain(raw):
    container = raw.post("/containers/create", PLAIN).json["Id"]
    yield container
    raw.remove(container)


@pytest.fixture(scope="module")
def limited(raw):
    container = raw.post("/containers/create", LIMITED).json["Id"]
    assert raw.post(f"/containers/{container}/start").status == 204
    yield container
    raw.remove(container)


@pytest.fixture
def guard(engine, plugin):
    """Turn authorization on from here to the end of the test."""

    def on():
        engine.configure({"authorization-plugins": [plugin]})

    yield on
    engine.configure({"authorization-plugins": []})


def test_a_start_that_changes_what_the_container_is(raw, plain, guard):
    guard()
    for uri in ("/v1.23/", "/v01.23/", "/v1.23.0/", "/v1.12/", "/%76%31%2e23/"):
        answer = raw.post(f"{uri}containers/{plain}/start", {"Privileged": True, "Binds": ["/:/host"]})
        assert answer.denied, uri
    seen = raw.get(f"/containers/{plain}/json")
    assert (seen["HostConfig"]["Privileged"], seen["State"]["Running"]) == (False, False)


def test_a_start_of_an_old_client_works_without_the_plugin(raw):
    container = raw.post("/containers/create", PLAIN).json["Id"]
    answer = raw.post(f"/v1.23/containers/{container}/start", {"Privileged": True, "Binds": ["/tmp:/host"]})
    seen = raw.get(f"/containers/{container}/json")
    raw.remove(container)
    known = version() < (25, 0)  # later Engines know no API before 1.24
    assert (answer.status == 400, seen["HostConfig"]["Privileged"]) == (not known, known)


EXECS = {
    "privileged": {"Cmd": ["true"], "Privileged": True},
    "privileged, other case": {"Cmd": ["true"], "privileged": True},
    "preload": {"Cmd": ["true"], "Env": ["LD_PRELOAD="]},
    "preload, another": {"Cmd": ["true"], "Env": ["LD_PRELOAD=/x.so:/run/convgpu/libconvgpu.so"]},
    "preload, taken away": {"Cmd": ["true"], "Env": ["LD_PRELOAD"]},
    "audit": {"Cmd": ["true"], "Env": ["LD_AUDIT=/x.so"]},
    "scheduler": {"Cmd": ["true"], "env": ["A=b", "CONVGPU_SOCKET=/x"]},
}


@pytest.mark.parametrize("name", EXECS)
@pytest.mark.parametrize(
    "form", ["/v1.41/containers/{}/exec", "/containers/{}%2Fexec", "http://x/v1.24/containers/{}/exec"]
)
def test_exec(raw, limited, guard, name, form):
    call = Call("POST", form.format(limited), EXECS[name])
    assert raw.send(call).status == 201
    guard()
    assert raw.send(call).denied


def archive(container, query):
    """Return the call that unpacks a file named as the one that names what is loaded into each program."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("ld.so.preload"))
    tar_type = {"Content-Type": "application/x-tar"}
    return Call("PUT", f"/v1.41/containers/{container}/archive?{query}", out.getvalue(), tar_type)


def test_an_update_changes_no_device(raw, plain):
    before = raw.get(f"/containers/{plain}/json")["HostConfig"]
    wanted = [way.host for way in (*bypasses.gpu_ways(), *bypasses.host_ways(), *bypasses.newer_ways())]
    for host in wanted:
        raw.post(f"/containers/{plain}/update", host)
    assert raw.get(f"/containers/{plain}/json")["HostConfig"] == before


@pytest.mark.parametrize("path", ["/etc", "/etc/", "etc", "/tmp/../etc", "/", "", "/run/convgpu", "/var/run/convgpu/."])
def test_archive(raw, limited, guard, path):
    queries = [
        f"path={quote(path)}",
        f"x=%23&path={quote(path)}",
        f"x=#&path={quote(path)}",
        f"path={quote(path)}&path=/x",
    ]
    if "etc" in path:  # the volume itself is read-only, and an empty path is none
        assert {raw.send(archive(limited, query)).status for query in queries} == {200}
    guard()
    assert all(raw.send(archive(limited, query)).denied for query in queries)
    assert raw.send(archive(limited, "path=/tmp")).status == 200


@pytest.mark.parametrize("name", bypasses.DISGUISES)
def test_a_volume_that_is_a_bind(raw, guard, name):
    body = {"Name": "bind-in-disguise", "Driver": "local", "DriverOpts": bypasses.DISGUISES[name]}
    assert raw.post("/volumes/create", body).status == 201
    raw.send(Call("DELETE", "/volumes/bind-in-disguise"))
    guard()
    assert raw.post("/volumes/create", body).denied
    assert raw.post("/volumes/create", {**body, "Driver": ""}).denied
    assert raw.send(Call("GET", "/volumes/bind-in-disguise")).status == 404


def test_processes_of_a_container_with_a_volume_of_ours(raw, limited, guard):
    body = {**PLAIN, "HostConfig": {"PidMode": f"container:{limited}", "NetworkMode": "none"}}
    created = raw.post("/containers/create", body)
    assert created.status == 201
    guard()
    assert raw.post("/containers/create", body).denied
    assert raw.post(f"/containers/{created.json['Id']}/start").denied
    raw.remove(created.json["Id"])


def test_plugins(engine, raw, plugin, guard):
    plugin_id = engine.inspect("plugin", plugin, "{{.Id}}")
    raw.post(f"/plugins/{plugin}/disable?force=1")
    assert raw.get(f"/plugins/{plugin}/json")["Enabled"] is False
    engine("plugin", "enable", plugin)
    guard()
    for name in (
        plugin,
        f"{plugin}:latest",
        plugin_id,
        plugin_id[:12],
        "%63onvgpu",
        quote(f"{plugin}:latest", safe=""),
    ):
        for action in ("disable?force=1", "set", "upgrade?remote=x", "enable"):
            assert raw.post(f"/v1.41/plugins/{name}/{action}", ["CONVGPU_LOG=debug"]).denied
        assert raw.send(Call("DELETE", f"/plugins/{name}?force=1")).denied
    assert raw.post("/plugins/pull?remote=x", []).denied
    assert raw.post("/plugins/create?name=x").denied
    assert raw.get(f"/plugins/{plugin}/json")["Enabled"] is True


def test_a_swarm_is_for_administrators(raw, guard):
    guard()
    body = {"ListenAddr": "127.0.0.1:1", "AdvertiseAddr": "127.0.0.1"}
    assert raw.post("/swarm/init", body).denied
    assert raw.post("/swarm/join", {**body, "RemoteAddrs": ["127.0.0.1:1"], "JoinToken": "x"}).denied
    assert raw.get("/info")["Swarm"]["LocalNodeState"] == "inactive"


BAD = [
    b"",
    b"{}",
    b"null",
    b"[]",
    b"{",
    b'{"Image": "\xff"}',
    b"[" * 100_000,
    b'{"Image": ' * 100_000,
    b'{"Image": "' + b"x" * (5 << 20) + b'"}',
    b'{"HostConfig": 7, "Env": 7, "Driver": 7, "TaskTemplate": 7}',
]


@pytest.mark.parametrize("body", BAD, ids=lambda body: f"{body[:12]!r}-{len(body)}")
@pytest.mark.parametrize("uri", ["/containers/create", "/containers/{}/exec", "/volumes/create", "/services/create"])
def test_bad_input_is_a_clear_refusal(raw, plain, guard, uri, body):
    guard()
    answer = raw.send(Call("POST", uri.format(plain), body))
    # Engines with the fix of CVE-2026-34040 do not ask about more than 4 MiB, and refuse it themselves.
    too_large = b"request body too large for authorization plugin" in answer.raw
    assert 400 <= answer.status < 500 or too_large or (uri == "/services/create" and answer.status == 503), answer
    assert raw.get("/info")["Containers"] >= 1
    assert b"not-understood" not in answer.raw


def test_unknown_methods_change_nothing(raw, guard):
    guard()
    for method in ("BREW", "PATCH", "post", "PUT", "CONNECT", "TRACE"):
        answer = raw.send(Call(method, "/v1.41/containers/create", {**PLAIN, "HostConfig": {"Privileged": True}}))
        assert answer.status >= 400
