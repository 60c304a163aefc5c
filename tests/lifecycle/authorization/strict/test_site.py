"""Strict rules on a real Engine: the sample site's own passes, and no attempt gets a running container.

Without authorization each innocent works too; what counts of an attempt is whether a container of it ran.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import strict_site
from raw_engine import Call
from strict_run import API, body, run

pytestmark = pytest.mark.engine

ATTEMPTS = strict_site.attempts()


def test_the_sites_own_containers_run(raw, site):
    # By the innocents' names; /dev/fuse is not on every machine.
    hosts = {name: host for name, host in strict_site.INNOCENTS.items() if name != "fuse" or Path("/dev/fuse").exists()}
    if not site.limits_cpus():
        hosts["limits"] = {name: value for name, value in hosts["limits"].items() if name != "NanoCpus"}
    refused = {name: run(raw, host) for name, host in hosts.items()}
    assert {name: text for name, text in refused.items() if text is not None} == {}


def test_no_attempt_runs(raw):
    refused = {name: run(raw, host) for name, host in ATTEMPTS.items()}
    assert [name for name, text in refused.items() if text is None] == []
    denied = [name for name, text in refused.items() if text is not None and "authorization denied" in text]
    assert len(denied) > 0.8 * len(refused)  # others the Engine itself does not know


def test_no_call_beside_passes(raw):
    answers = {call: raw.send(Call(*call, {"x": 1})) for call in strict_site.CALLS}
    # What the Engine itself does not know it does not ask about.
    passed = {call: answer.status for call, answer in answers.items() if not (answer.denied or answer.status == 404)}
    assert passed == {}
    assert sum(answer.denied for answer in answers.values()) > 0.8 * len(answers)


def test_a_null_in_a_list_makes_no_container(raw):
    """An Engine 28.5 ends each call about it with its lock held, so that nobody can remove it."""
    for host in ({"Ulimits": [None]}, {"Mounts": [None]}):
        answer = raw.post(f"{API}/containers/create?name=null", body(host))
        assert (answer.denied, b"strict-nulls" in answer.raw) == (True, True), answer
    assert raw.send(Call("GET", f"{API}/containers/null/json")).status == 404


@pytest.fixture
def swapped(raw, site):
    """A container that mounts a listed folder, which its owner has replaced by a link since, and the answer."""
    folder = Path(strict_site.DATA, "swapped")
    folder.mkdir()
    host = {**strict_site.mount("bind", str(folder)), "RestartPolicy": {"Name": "always"}}
    container = raw.post("/v1.41/containers/create", body(host) | {"Cmd": ["sleep", "600"]}).json["Id"]
    yield folder, container
    raw.remove(container)
    if folder.is_symlink():
        folder.unlink()
    site.configure({"authorization-plugins": ["convgpu"]})


def test_a_folder_that_was_swapped_is_refused_by_authorization_and_by_the_runtime(raw, site, swapped):
    folder, container = swapped
    start = f"/v1.41/containers/{container}/start"
    assert raw.post(start).status == 204
    raw.post(f"/v1.41/containers/{container}/kill")
    folder.rmdir()
    folder.symlink_to("/root")
    assert "strict-paths" in raw.post(start).raw.decode()
    # As a restart policy starts it: nobody asks authorization.
    site.configure({"authorization-plugins": []})
    answer = raw.post(start)
    assert (answer.status, f"strict-paths: {folder}, mounted at /x" in answer.raw.decode()) == (500, True), answer


def test_nobody_reaches_into_a_container_that_has_more(raw, site):
    site.configure({"authorization-plugins": []})
    more = {"CapAdd": ["SYS_PTRACE"], "Runtime": "runc"}  # as an administrator makes one
    container = raw.post("/v1.41/containers/create", body(more) | {"Cmd": ["sleep", "600"]}).json["Id"]
    assert raw.post(f"/v1.41/containers/{container}/start").status == 204
    site.configure({"authorization-plugins": ["convgpu"]})
    one = f"/v1.41/containers/{container}"
    calls = [
        Call("POST", f"{one}/exec", {"Cmd": ["true"]}),
        Call("POST", f"{one}/attach?stdin=1&stream=1"),
        Call("GET", f"{one}/attach/ws?stdin=1&stream=1"),
        Call("HEAD", f"{one}/archive?path=/etc/shadow"),
        Call("GET", f"{one}/logs?stdout=1"),
        Call("GET", f"{one}/changes"),
        Call("GET", f"{one}/top"),
        Call("POST", "/v1.41/networks/bridge/connect", {"Container": container}),
        Call("PUT", f"{one}/archive?path=/tmp", b""),
        Call("POST", f"{one}/update", {"RestartPolicy": {"Name": "always"}}),
        Call("POST", f"{one}/restart"),
        Call("POST", f"/v1.41/commit?container={container}&repo=x"),
    ]
    answers = [raw.send(call) for call in calls]
    raw.remove(container)
    # The answer to HEAD has no body.
    assert [
        answer.denied or (call.method, answer.status) == ("HEAD", 403)
        for call, answer in zip(calls, answers, strict=True)
    ] == [True] * len(calls)


def accepting(written: str) -> str:
    """Return the list with the entry that it names in a comment, if no container starts on this Engine without."""
    entry = 'accept = ["removal"]'
    return written.replace("accept = []", entry) if f"accept it: {entry}" in written else written


def test_a_list_that_is_written_from_what_ran_permits_it(raw, site):
    """By `convgpu policy write`, from a container that has more than the list, and from one that is gone."""
    rules = site.directory / "etc/convgpu/rules.toml"
    before = rules.read_text()
    more = {"CapAdd": ["SYS_NICE"], "Binds": ["/home:/x:ro"]}
    rules.write_text('mode = "enforce"')
    gone = raw.post("/v1.41/containers/create?name=gone", body({"CapAdd": ["SYS_TIME"]})).json["Id"]
    assert raw.post(f"/v1.41/containers/{gone}/start").status == 204
    raw.remove(gone)
    container = raw.post("/v1.41/containers/create?name=ran", body(more)).json["Id"]
    try:
        command = [str(Path(sys.executable).with_name("convgpu")), "policy", "write", "--since", "1h"]
        done = subprocess.run(
            command,
            env={**os.environ, "DOCKER_HOST": site.host},
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert '    "/home:ro",  # ran\n' in done.stdout
        assert '    "SYS_TIME",  # gone\n' in done.stdout
        rules.write_text(before)
        assert "strict-" in raw.post(f"/v1.41/containers/{container}/start").raw.decode()
        rules.write_text(accepting(done.stdout))
        assert raw.post(f"/v1.41/containers/{container}/start").status == 204
    finally:
        rules.write_text(before)
        raw.remove(container)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_the_engine_comes_back(site, raw, how):
    """It starts its plugins with the default runtime, which judges by the site's rules; without them it panics."""
    assert run(raw, strict_site.INNOCENTS["volumes"]) is None
    site("volume", "create", "--driver", "convgpu", "--opt", "memory=1g", f"kept-{how}")
    getattr(site, how)()
    site.start()
    site.wait_for_plugin("convgpu")
    assert site("volume", "rm", f"kept-{how}").strip() == f"kept-{how}"
    assert run(raw, strict_site.INNOCENTS["data"]) is None
