"""Strict rules of calls in which the Engine works as root on what its users change meanwhile: volumes and layers."""

import pytest
import strict_site
from engine_says import OURS, inspected

from convgpu.authz.site.rules import parse_rules

ANONYMOUS = "0123456789abcdef" * 4


def volume(source, **options):
    return strict_site.mount("volume", source, VolumeOptions=options)


FILLED = {
    "bind": {"Binds": ["v:/x"]},
    "read-only": {"Binds": ["v:/x:ro"]},
    "two modes": {"Binds": ["v:/x:ro,consistent"]},
    "misspelt": {"Binds": ["v:/x:NoCopy"]},
    "mount": strict_site.mount("volume", "v"),
    "mount read-only": strict_site.mount("volume", "v", ReadOnly=True),
    "said not": volume("v", NoCopy=False),
    "tmpfs": volume("v", DriverConfig={"Name": "local", "Options": {"type": "tmpfs", "device": "tmpfs"}}),
}
NOT_FILLED = {
    "bind": {"Binds": ["v:/x:nocopy"]},
    "two modes": {"Binds": ["v:/x:ro,nocopy"]},
    "mount": volume("v", NoCopy=True),
    "without a name": {"Binds": ["/x"]},
    "mount without a name": strict_site.mount("volume", ""),
    "tmpfs": {"Mounts": [{"Type": "tmpfs", "Target": "/x"}]},
}


@pytest.mark.parametrize("name", FILLED)
def test_nobody_has_a_volume_filled_that_others_may_have(strict, name):
    """Who has it exchanged a folder for a link, and the Engine wrote a setuid file through it."""
    verdict = strict.judge({"Image": "i", "HostConfig": FILLED[name]})
    assert (verdict.rule, "-v v:/x:nocopy" in verdict.message) == ("strict-fields", True), verdict
    strict.engine.volumes["v"] = {"Driver": "local", "Options": None}
    assert strict.judge({"Image": "i", "HostConfig": FILLED[name]}).rule == "strict-fields"


@pytest.mark.parametrize("name", NOT_FILLED)
def test_volumes_that_the_engine_does_not_fill(strict, name):
    assert strict.judge({"Image": "i", "HostConfig": NOT_FILLED[name]}).rule == "no-gpu"


@pytest.mark.parametrize("host", [{"Binds": [f"{ANONYMOUS}:/x:nocopy"]}, volume(ANONYMOUS, NoCopy=True)])
def test_nobody_mounts_a_volume_that_has_no_name(strict, host):
    """It may be that of a container that is being made: the Engine's list of volumes shows it."""
    assert strict.judge({"Image": "i", "HostConfig": host}).rule == "strict-names"
    assert strict.judge({"Image": "i", "HostConfig": {"Binds": [f"{ANONYMOUS[1:]}:/x:nocopy"]}}).allow


def test_a_volume_of_ours_is_never_empty(strict):
    strict.engine.volumes["mine"] = {"Driver": OURS["Driver"], "Options": None}
    for host in ({"Binds": ["mine:/run/convgpu"]}, {"Binds": ["new:/run/convgpu"], "VolumeDriver": "convgpu"}):
        assert strict.judge({"Image": "i", "HostConfig": host}).rule == "limited"


@pytest.mark.parametrize("name", [ANONYMOUS, ANONYMOUS[:12]])
@pytest.mark.parametrize("target", ["/run/convgpu", "/x"])
def test_nobody_mounts_the_limit_that_the_runtime_made_for_another_container(strict, name, target):
    """Its name is the container's ID. Who mounted it took 500 MiB of that container's limit, and had it ended."""
    strict.rules = parse_rules(strict_site.RULES + 'fields = ["volume copy"]')
    strict.engine.volumes[name] = {"Driver": OURS["Driver"], "Options": None}
    mounted = {"Mounts": [{"Type": "volume", "Source": name, "Target": target}]}
    for host in (mounted, {"Binds": [f"{name}:{target}"]}, {"Binds": [f"{name}:{target}"], "VolumeDriver": "convgpu"}):
        assert strict.judge({"Image": "i", "HostConfig": host}).rule == "strict-names"


BESIDE = {"Options": {"type": "tmpfs", "device": "tmpfs"}}


@pytest.mark.parametrize("driver", [{}, {"Name": "local"}])
def test_options_beside_the_name_of_a_volume_that_exists(strict, driver):
    """The Engine takes the volume; and the options, where it is gone by then."""
    strict.rules = parse_rules(strict_site.RULES + 'fields = ["volume copy"]')
    asked = {"Image": "i", "HostConfig": volume(ANONYMOUS[:12], NoCopy=True, DriverConfig=BESIDE | driver)}
    strict.engine.volumes = {ANONYMOUS[:12]: {"Driver": OURS["Driver"], "Options": None}}
    assert strict.judge(asked).rule == "strict-names"
    for options, rule in (({"type": "none", "o": "bind", "device": "/root"}, "strict-volumes"), ({}, "no-gpu")):
        strict.engine.volumes = {ANONYMOUS[:12]: {"Driver": "local", "Options": options}}
        assert strict.judge(asked).rule == rule
    bound = {"Options": {"type": "none", "o": "bind", "device": "/root"}}
    asked = {"Image": "i", "HostConfig": volume("v", NoCopy=True, DriverConfig=bound | driver)}
    for found in ({"Driver": OURS["Driver"], "Options": None}, {"Driver": "local", "Options": None}):
        strict.engine.volumes = {"v": found}
        assert strict.judge(asked).rule == "strict-volumes"
    strict.rules = parse_rules("")
    assert strict.judge({"Image": "i", "HostConfig": volume("v", DriverConfig=BESIDE)}).allow


def test_a_volume_without_a_name_is_its_containers_own(strict):
    """The Engine shows it by the name that it drew; one from another container by no name of a mount's own."""
    rows = [{**OURS, "Name": ANONYMOUS}]
    own = {"Mounts": [{"Type": "volume", "Target": "/run/convgpu"}]}
    for host in (own, {**own, "VolumesFrom": ["data"]}):
        assert strict.start(inspected({"Runtime": "convgpu", **host}, mounts=rows)).rule == "limited"
    taken = {"Runtime": "convgpu", "VolumesFrom": ["victim"]}
    assert strict.start(inspected(taken, mounts=rows)).rule == "strict-names"


def test_an_entry_lets_volumes_be_filled(strict):
    strict.rules = parse_rules(strict_site.RULES + 'fields = ["volume copy"]')
    for host in (*FILLED.values(), {"Binds": [f"{ANONYMOUS}:/x"]}):
        assert strict.judge({"Image": "i", "HostConfig": host}).rule == "no-gpu"


def test_guard_lets_volumes_be_filled(strict):
    strict.rules = parse_rules("")
    assert strict.judge({"Image": "i", "HostConfig": FILLED["bind"]}).allow


def test_a_container_that_exists_starts_with_its_volumes(strict):
    """What was to be filled is; and its volumes without names are shown by those that the Engine gave them."""
    mounts = [
        {"Type": "volume", "Name": name, "Driver": "local", "Destination": f"/{name}"} for name in ("v", ANONYMOUS)
    ]
    host = {"Runtime": "convgpu", **FILLED["bind"]}
    assert strict.start(inspected(host, mounts=mounts)).rule == "no-gpu"


@pytest.mark.parametrize("method", ["HEAD", "GET", "PUT"])
@pytest.mark.parametrize("engine", [(20, 10), (28, 5), (29, 0)])
def test_docker_cp_needs_an_entry(strict, method, engine):
    """By names that its users exchange the Engine mounts what the container has, or comes to have meanwhile."""
    strict.engine.more["engine"] = engine
    for name in ("c", "nobody", "more"):
        assert strict.judge(b"", f"/v1.41/containers/{name}/archive?path=/tmp", method).rule in {
            "strict-calls",
            "strict-capabilities",
        }
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"cp"'))
    assert strict.judge(b"", "/v1.41/containers/c/archive?path=/tmp", method).allow
    assert strict.judge(b"", "/v1.41/containers/more/archive?path=/tmp", method).rule == "strict-capabilities"


def test_docker_cp_by_guard_and_by_an_exemption(strict):
    strict.engine.more["engine"] = (20, 10)
    exempt = '[[exempt]]\nusers = ["local"]\nrules = ["strict-calls"]'
    for rules in ("", strict_site.RULES + exempt):
        strict.rules = parse_rules(rules)
        assert strict.judge(b"", "/v1.41/containers/c/archive?path=/tmp", "PUT").allow
        assert strict.judge(b"", "/v1.41/containers/c/archive?path=/tmp", "GET").allow


BY_NAME = [
    ("GET", "containers/NAME/logs?stdout=1", b""),
    ("GET", "containers/NAME/export", b""),
    ("GET", "containers/NAME/top", b""),
    ("POST", "containers/NAME/attach?stream=1", b""),
    ("POST", "containers/NAME/exec", {"Cmd": ["sh"]}),
    ("POST", "containers/NAME/update", {"Memory": 1 << 30}),
    ("POST", "containers/NAME/start", b""),
    ("POST", "networks/n/connect", {"Container": "NAME"}),
]
IDS = ["a" * 64, "b" * 64]


class Changing(dict[str, object]):
    """Containers of which `c` is another one each time that it is asked for."""

    def __init__(self, *ids):
        super().__init__()
        self.asked = []
        self._documents = [{**inspected({"Runtime": "convgpu"}, mounts=()), "Id": own} if own else None for own in ids]

    def get(self, name, _default=None):
        self.asked.append(name)
        return self._documents[min(len(self.asked), len(self._documents)) - 1]


def call(strict, method, path, body, name="c", user="local"):
    body = {key: name if value == "NAME" else value for key, value in body.items()} if body else body
    return strict.judge(body, f"/v1.41/{path.replace('NAME', name)}", method, user)


@pytest.mark.parametrize(("method", "path", "body"), BY_NAME)
def test_a_name_that_comes_to_mean_another_container_while_the_call_is_judged(strict, method, path, body):
    """A stranger exported a container that was made under that name meanwhile: 2 of 2 times."""
    strict.engine.containers = Changing(*IDS)
    verdict = call(strict, method, path, body)
    assert (verdict.rule, "came to mean another container" in verdict.message) == ("strict-names", True), verdict
    strict.engine.containers = Changing(IDS[0], None)
    assert call(strict, method, path, body).rule == "strict-names"
    strict.engine.containers = Changing(IDS[0])
    assert call(strict, method, path, body).allow


@pytest.mark.parametrize(("method", "path", "body"), BY_NAME)
def test_a_name_of_nobody_may_be_somebodys_when_the_engine_looks(strict, method, path, body):
    strict.engine.containers = Changing(None, IDS[0])
    verdict = call(strict, method, path, body)
    assert (verdict.rule, "no such container" in verdict.message) == ("strict-names", True), verdict


@pytest.mark.parametrize(("method", "path", "body"), BY_NAME)
def test_an_id_means_one_container_for_ever(strict, method, path, body):
    strict.engine.containers = Changing(IDS[0])
    assert call(strict, method, path, body, IDS[0]).allow
    assert strict.engine.containers.asked == [IDS[0]]
