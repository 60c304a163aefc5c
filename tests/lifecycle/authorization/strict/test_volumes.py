"""What the Engine does as root with volumes, under strict rules: it fills none that others have."""

from pathlib import Path

import pytest
from raw_engine import Call
from strict_run import API, body, output

pytestmark = pytest.mark.engine

LIMIT = {"Name": "convgpu", "Options": {"memory": "1g"}}
SHOW = "ls /etc/apt | wc -l"  # a folder of the image that is not empty


@pytest.fixture
def shared(raw):
    """A volume that a container has which runs: its program could put links into it."""
    host = {"Binds": ["shared:/a:nocopy", "below:/a/b:nocopy"]}
    container = raw.post(f"{API}/containers/create", body(host, "sleep", "600")).json["Id"]
    assert raw.post(f"{API}/containers/{container}/start").status == 204
    yield container
    raw.remove(container)
    for name in ("shared", "below"):
        raw.send(Call("DELETE", f"{API}/volumes/{name}"))


def test_no_volume_is_filled_that_others_have(raw, shared):  # noqa: ARG001 - it has the volume
    for host in ({"Binds": ["shared:/etc/apt"]}, {"Mounts": [{"Type": "volume", "Source": "shared", "Target": "/x"}]}):
        answer = raw.post(f"{API}/containers/create", body(host))
        assert (answer.denied, b"strict-fields" in answer.raw) == (True, True), answer
    assert output(raw, {"Binds": ["shared:/etc/apt:nocopy"]}, SHOW) == "1\n"  # the place of the other volume


def test_a_volume_without_a_name_is_filled_and_nobody_elses(raw):
    assert int(output(raw, {"Binds": ["/etc/apt"]}, SHOW)) > 0
    made = raw.post(f"{API}/containers/create", body({"Binds": ["/etc/apt"]})).json["Id"]
    # Engine 28.5 shows no name of such a volume.
    name = Path(raw.get(f"{API}/containers/{made}/json")["Mounts"][0]["Source"]).parent.name
    answer = raw.post(f"{API}/containers/create", body({"Binds": [f"{name}:/x:nocopy"]}))
    raw.remove(made)
    assert (answer.denied, b"strict-names" in answer.raw) == (True, True), answer


def test_nobody_mounts_the_limit_of_another_container(raw):
    """It is known by the container's ID, and is no volume; anonymous ones come by `--volumes-from`, too."""
    wanted = body({}, "sleep", "600") | {"Env": ["CONVGPU_MEMORY=1g"]}
    anonymous = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": LIMIT}}
    victim, other = (
        raw.post(f"{API}/containers/create", each).json["Id"] for each in (wanted, body({"Mounts": [anonymous]}))
    )
    try:
        assert raw.post(f"{API}/containers/{victim}/start").status == 204
        names = [volume["Name"] for volume in raw.get(f"{API}/volumes")["Volumes"]]
        assert victim not in names
        assert raw.send(Call("DELETE", f"{API}/volumes/{victim}")).status == 404
        assert raw.post(f"{API}/volumes/create", {"Name": victim, "Driver": "convgpu"}).denied
        for host in ({"Binds": [f"{victim}:/x"]}, {"Mounts": [{"Type": "volume", "Source": victim, "Target": "/x"}]}):
            answer = raw.post(f"{API}/containers/create", body(host))
            assert (answer.denied, b"strict-names" in answer.raw) == (True, True), answer
        assert raw.post(f"{API}/containers/{other}/start").status == 204
        taker = raw.post(f"{API}/containers/create", body({"VolumesFrom": [other]})).json["Id"]
        answer = raw.post(f"{API}/containers/{taker}/start")
        raw.remove(taker)
        assert (answer.denied, b"strict-names" in answer.raw) == (True, True), answer
    finally:
        raw.remove(victim)
        raw.remove(other)


def mounts():
    """Return the host's mounts of the two volumes; other Engines of the tests mount meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/volumes/shared/" in line or "/volumes/below/" in line]


@pytest.mark.parametrize("method", ["HEAD", "GET", "PUT"])
def test_docker_cp_mounts_nothing_in_the_hosts_tree(raw, shared, method):
    before = mounts()
    answer = raw.send(Call(method, f"{API}/containers/{shared}/archive?path=/tmp", b"\0" * 1024))
    assert answer.status == 403, answer
    assert mounts() == before
