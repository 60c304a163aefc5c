"""Strict rules: everything that the list of a site lacks is refused, and what it has passes."""

import pytest
import strict_site
from engine_says import HOOK, NEW_ENGINE, OURS, inspected

from convgpu.authz.site.rules import parse_rules
from convgpu.authz.site.strict_list import SECTIONS

ATTEMPTS = strict_site.attempts()
ENGINES = {"20.10": (20, 10), "28.5": (28, 5)}


@pytest.fixture
def strict(harness):
    harness.rules = parse_rules(strict_site.RULES)
    harness.engine.runtime = "convgpu"
    harness.engine.runtime_memory = "1g"
    harness.engine.more = dict(NEW_ENGINE)
    harness.engine.containers["other"] = inspected(mounts=())
    return harness


def create(harness, host, **config):
    return harness.judge({"Image": "i", "HostConfig": host, **config})


@pytest.mark.parametrize("name", strict_site.INNOCENTS)
def test_the_list_passes_the_sites_own(strict, name):
    host = strict_site.INNOCENTS[name]
    assert create(strict, host).rule == "no-gpu"


@pytest.mark.parametrize("engine", ENGINES)
def test_no_attempt_gets_through(strict, engine):
    strict.engine.more["engine"] = ENGINES[engine]
    passed = [name for name, host in ATTEMPTS.items() if create(strict, host).allow]
    assert passed == []
    assert {name.partition(":")[0] for name in ATTEMPTS} == set(strict_site.CLASSES)


def test_most_of_these_are_refused_by_the_list_itself(strict):
    """In guard, which promises less, they pass."""
    strict.rules = parse_rules("")
    passed = [name for name, host in ATTEMPTS.items() if create(strict, host).allow]
    assert len(passed) > len(ATTEMPTS) // 4


def test_a_refusal_names_rule_and_entry(strict):
    verdict = create(strict, {"Binds": ["/home/eve:/x:ro"]})
    assert verdict.rule == "strict-paths"
    assert verdict.message == (
        "strict-paths: the mount of /home/eve:ro is not in the list of this site.\n"
        "Leave it out, or ask the administrator for an entry: paths = ['/home/eve:ro']"
    )


@pytest.mark.parametrize(("method", "uri"), strict_site.CALLS)
def test_calls_that_are_not_listed(strict, method, uri):
    assert strict.judge({"x": 1}, uri, method).rule == strict_site.CALLS[method, uri]


@pytest.mark.parametrize(("method", "uri"), strict_site.OPEN_CALLS)
def test_calls_that_are_open(strict, method, uri):
    assert strict.judge(b"", uri, method).allow


def test_a_limited_gpu_passes_with_its_hook_where_nobody_can_move_it(strict):
    gpus = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
    ours = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": {"Name": "convgpu"}}}
    limited = {**gpus, "Mounts": [ours]}
    assert create(strict, limited, Env=[HOOK]).rule == "limited"
    assert create(strict, gpus, Env=["CONVGPU_MEMORY=1g"]).rule == "injected"
    above = {**limited, "Binds": [f"{strict_site.DATA}:/run"]}
    assert create(strict, above, Env=[HOOK]).rule == "strict-paths"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "exec", {"Cmd": ["sh"]}),
        ("POST", "attach", b""),
        ("GET", "attach/ws", b""),
        ("GET", "archive?path=/etc/shadow", b""),
        ("GET", "export", b""),
        ("PUT", "archive?path=/tmp", b""),
        ("POST", "update", {"Memory": 1}),
        ("POST", "start", b""),
        ("POST", "restart", b""),
    ],
)
def test_nobody_reaches_into_a_container_that_he_could_not_make(strict, method, path, body):
    uri = f"/v1.41/containers/c/{path}"
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu"}, mounts=())
    assert strict.judge(body, uri, method).allow
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu", "CapAdd": ["SYS_PTRACE"]}, mounts=())
    assert strict.judge(body, uri, method).rule == "strict-capabilities"
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu", "Privileged": True}, mounts=())
    assert strict.judge(body, uri, method).rule == "privileged"
    assert strict.judge(b"", "/commit?container=c").rule == "privileged"


@pytest.mark.parametrize(
    ("name", "rule"), [("fade", "strict-names"), ("/0123456789ab", "strict-names"), ("facade-1", "no-gpu")]
)
def test_a_name_that_can_be_taken_for_an_id(strict, name, rule):
    """A stranger raced with `rename`, and his exec reached the container whose ID begins so."""
    body = {"Image": "i", "HostConfig": {}}
    assert strict.judge(body, f"/v1.41/containers/create?name={name}").rule == rule


def test_the_namespaces_of_a_neighbour_who_has_more(strict):
    strict.rules = parse_rules(strict_site.RULES.replace('"network=host"', '"network=host", "network=container"'))
    joins = {"NetworkMode": "container:other"}
    strict.engine.containers["other"] = inspected({"Runtime": "convgpu"}, mounts=())
    assert create(strict, joins).allow
    strict.engine.containers["other"] = inspected({"Runtime": "convgpu", "CapAdd": ["SYS_PTRACE"]}, mounts=())
    assert create(strict, joins).rule == "strict-capabilities"


def test_copies_go_to_listed_folders_and_through_no_link(strict):
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu"}, mounts=())

    def copy(path):
        return strict.judge(b"", f"/v1.41/containers/c/archive?path={path}", "PUT").rule

    assert copy("/tmp/a/b") == copy("/tmp") == copy("tmp") == "nothing-to-judge"
    assert copy("/etc") == copy("/tmp/../etc") == copy("") == copy("/tmp&path=/etc") == "strict-copies"
    strict.engine.links = {"/tmp/a"}
    assert (copy("/tmp/a/b"), copy("/tmp/b")) == ("strict-copies", "nothing-to-judge")


def test_restart_policies_need_the_runtime_that_judges_each_start(strict):
    strict.rules = parse_rules(strict_site.RULES + 'runtimes = ["runc"]')
    again = {"RestartPolicy": {"Name": "always"}}
    assert create(strict, {"Runtime": "runc"}).allow
    assert create(strict, {"Runtime": "runc", **again}).rule == "strict-restarts"
    strict.engine.containers["c"] = inspected(mounts=())
    update = "/v1.41/containers/c/update"
    assert strict.judge(again, update).rule == "strict-restarts"
    assert strict.judge({"Memory": 1}, update).allow


def test_the_engines_defaults_need_no_entry(strict):
    strict.engine.more |= {"cgroupns": "host", "log_driver": "syslog"}
    host = {"Runtime": "convgpu", "CgroupnsMode": "host", "LogConfig": {"Type": "syslog"}, "IpcMode": "private"}
    assert strict.start(inspected(host, mounts=())).allow
    strict.engine.more |= {"cgroupns": "private", "log_driver": "json-file"}
    assert strict.start(inspected(host, mounts=())).rule == "strict-namespaces"
    host.pop("CgroupnsMode")
    assert strict.start(inspected(host, mounts=())).rule == "strict-drivers"


def test_volumes_and_networks(strict):
    def volume(**body):
        return strict.judge({"Name": "v", **body}, "/v1.41/volumes/create").rule

    assert volume() == volume(Driver="local") == volume(DriverOpts={"type": "tmpfs"}) == "nothing-to-judge"
    assert volume(Driver="sshfs") == "strict-drivers"
    assert volume(DriverOpts={"type": "nfs", "device": ":/x"}) == "strict-volumes"
    assert volume(DriverOpts={"type": "none", "o": "bind", "device": strict_site.DATA}) == "strict-volumes"

    def network(driver, **body):
        return strict.judge({"Name": "n", "Driver": driver, **body}, "/v1.41/networks/create").rule

    assert network("bridge") == network("", IPAM={"Driver": "default"}) == "nothing-to-judge"
    assert network("weave") == network("bridge", IPAM={"Driver": "../../../tmp/evil"}) == "strict-drivers"


def test_a_driver_that_is_named_beside_a_volume_that_exists(strict):
    strict.engine.volumes["v"] = {"Driver": "local", "Options": None}

    def mounted(name, kind="VolumeDriver"):
        if kind == "VolumeDriver":
            return create(strict, {kind: name, "Binds": ["v:/x:nocopy"]}).rule
        options = {"DriverConfig": {"Name": name}, "NoCopy": True}
        return create(strict, {"Mounts": [{"Type": "volume", "Source": "v", "Target": "/x", kind: options}]}).rule

    for kind in ("VolumeDriver", "VolumeOptions"):
        assert mounted("", kind) == mounted("local", kind) == mounted(OURS["Driver"], kind) == "no-gpu"
        assert mounted("../../../tmp/evil", kind) == mounted("sshfs", kind) == "strict-drivers"
    assert create(strict, {"VolumeDriver": "../../../tmp/evil"}).rule == "strict-drivers"


def test_builds(strict):
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"commit", "build"').replace('"network=host"', ""))

    def build(query):
        return strict.judge({"x": 1}, f"/v1.41/build?t=x{query}").rule

    assert build("") == build("&networkmode=default&version=1") == "nothing-to-judge"
    assert build("&networkmode=host") == build("&networkmode=container:x") == "strict-namespaces"
    assert build("&cgroupparent=/x") == "strict-cgroups"
    assert build("&version=2") == "strict-calls"
    assert build("&securityopt=x") == build("&tomorrow=1") == "strict-fields"


def test_services_need_the_call_and_their_mounts(strict):
    service = {"Name": "s", "TaskTemplate": {"ContainerSpec": {"Image": "i"}}}
    assert strict.judge(service, "/v1.41/services/create").rule == "strict-calls"
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"commit", "services"'))
    assert strict.judge(service, "/v1.41/services/create").allow
    service["TaskTemplate"]["ContainerSpec"]["Mounts"] = [{"Type": "bind", "Source": "/home", "Target": "/x"}]
    assert strict.judge(service, "/v1.41/services/create").rule == "strict-paths"


def test_another_plugins_folder_is_not_ours(strict):
    strict.engine.more["plugin_id"] = "a" * 64
    for plugin, rule in (("a", "injected"), ("b", "host-path")):
        file = f"/var/lib/docker/plugins/{plugin * 64}/propagated-mount/ld.so.preload:/etc/ld.so.preload:ro"
        gpus = {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}], "Binds": [file]}
        verdict = create(strict, gpus)
        assert (verdict.rule == rule) or (plugin == "a" and verdict.rule == "hook-shadowed"), verdict


def test_an_exemption_lifts_an_entry_for_its_users(strict):
    assert create(strict, {"CapAdd": ["SYS_TIME"]}).rule == "strict-capabilities"
    exempt = '\n[[exempt]]\nusers = ["local"]\nrules = ["strict-capabilities"]'
    strict.rules = parse_rules(strict_site.RULES + exempt)
    assert create(strict, {"CapAdd": ["SYS_TIME"]}).allow


def test_an_engine_that_removes_through_links_is_refused_until_the_site_accepts_it(strict):
    strict.engine.more["go"] = "go1.19.8"
    assert create(strict, {}).rule == "no-gpu"
    strict.rules = parse_rules(strict_site.RULES.replace('engine = ["removal"]', ""))
    verdict = create(strict, {})
    assert verdict.message == (
        "strict-engine: the Engine follows links when it removes folders (it was built with go1.19.8): by that its "
        "users empty any folder of the host.\n"
        "Take one of Go 1.22.4 or later, or accept that: engine = ['removal']"
    )
    strict.engine.more["go"] = ""
    assert create(strict, {}).rule == "strict-engine"
    strict.engine.more["go"] = "go1.22.4"
    assert create(strict, {}).rule == "no-gpu"


def test_every_section_refuses_something(strict):
    rules = {create(strict, host).rule for host in ATTEMPTS.values()}
    by_calls = {"strict-calls", "strict-copies", "strict-restarts", "strict-ids", "strict-engine"}  # or elsewhere
    assert {f"strict-{section}" for section in SECTIONS} - rules == by_calls


def test_audit_with_a_list_judges_as_strict_would(strict):
    strict.rules = parse_rules(strict_site.RULES.replace('"strict"', '"audit"'))
    assert create(strict, {"Binds": ["/home:/x:ro"]}).rule == "strict-paths"
    strict.rules = parse_rules('mode = "audit"')
    assert create(strict, {"Binds": ["/home:/x:ro"]}).allow


def test_a_container_of_ours_that_starts_is_judged_by_the_list(strict):
    host = {"Runtime": "convgpu", "DeviceRequests": [{"Count": -1}]}
    strict.scheduler.limits["mine"] = 1 << 30
    assert strict.start(inspected(host)).rule == "limited"
    cron = {"Type": "bind", "Source": "/etc/cron.daily", "Destination": "/x", "RW": True}
    assert strict.start(inspected(host, mounts=(OURS, cron))).rule == "strict-paths"
