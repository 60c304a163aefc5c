"""Strict rules: everything that the list of a site lacks is refused, and what it has passes."""

from urllib.parse import urlencode

import pytest
import strict_site
from engine_says import HOOK, NEW_ENGINE, inspected

from convgpu.authz.site.rules import parse_rules

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


def test_devices_that_nvidias_runtime_would_find_in_a_variable_need_their_entry(strict):
    """It takes CDI devices of any vendor from it, behind our runtime."""
    for value, rule in {
        "0": "injected",
        "all": "injected",
        "nvidia.com/gpu=0,runtime.nvidia.com/gpu=all": "injected",
        "nvidia.com/gpu=0, vendor.com/disk=sda": "strict-devices",
    }.items():
        assert create(strict, {}, Env=[f"NVIDIA_VISIBLE_DEVICES={value}"]).rule == rule
    strict.rules = parse_rules(strict_site.RULES.replace('"/dev/fuse"', '"vendor.com/disk=sda"'))
    assert create(strict, {}, Env=["NVIDIA_VISIBLE_DEVICES=vendor.com/disk=sda"]).rule == "injected"


def test_devices_that_a_variable_of_nvidias_runtime_gives_need_their_entry(strict):
    mofed = ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_MOFED=enabled"]
    assert create(strict, {}, Env=mofed).rule == "strict-devices"
    assert create(strict, {}, Env=mofed[1:]).rule == "no-gpu"
    assert create(strict, {}, Env=[*mofed, "NVIDIA_MOFED=disabled"]).rule == "injected"
    assert create(strict, {}, Env=[mofed[0], "NVIDIA_IMEX_CHANNELS=0"]).rule == "strict-devices"
    assert create(strict, {}, Env=[mofed[0], "NVIDIA_IMEX_CHANNELS=0"]).rule == "strict-devices"
    strict.rules = parse_rules(strict_site.RULES.replace('"/dev/fuse"', '"/dev/infiniband"'))
    assert create(strict, {}, Env=mofed).rule == "injected"


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


def test_a_health_check_without_a_command_ends_the_engine(strict):
    """Its probe takes the first word of none (moby, daemon/health.go). An image may have one, too."""
    for test, rule in ((["CMD"], "strict-fields"), (["CMD", "true"], "no-gpu"), (["NONE"], "no-gpu"), ([], "no-gpu")):
        assert create(strict, {}, Healthcheck={"Test": test}).rule == rule
        strict.engine.containers["c"] = inspected({"Runtime": "convgpu"}, mounts=(), Healthcheck={"Test": test})
        assert strict.judge(b"", "/v1.41/containers/c/start", "POST").rule == rule


@pytest.mark.parametrize("seconds", ["-1", "3601", "1e3", "\u0661", " 5"])
def test_a_restart_waits_no_longer_than_its_start_counts(strict, seconds):
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu"}, mounts=())
    query = urlencode({"t": seconds})
    assert strict.judge(b"", f"/v1.41/containers/c/restart?{query}", "POST").rule == "strict-fields"
    assert strict.judge(b"", "/v1.41/containers/c/restart?t=3600", "POST").rule == "no-gpu"
    assert strict.judge(b"", "/v1.41/containers/c/restart?t=", "POST").rule == "no-gpu"


@pytest.mark.parametrize(
    ("seconds", "rule"), [(-1, "strict-fields"), (10**6, "strict-fields"), (0, "no-gpu"), (600, "no-gpu")]
)
def test_the_engine_need_not_wait_for_a_container_when_it_ends(strict, seconds, rule):
    assert create(strict, {}, StopTimeout=seconds).rule == rule


@pytest.mark.parametrize("option", ["labels", "labels-regex", "env", "env-regex"])
def test_long_labels_are_not_in_each_line_of_a_log(strict, option):
    """An image may have them, which shows at the start."""
    host, long = {"LogConfig": {"Type": "json-file", "Config": {option: "x"}}}, "x" * 40_000
    for config in ({"Labels": {"x": long}}, {"Env": [f"x={long}"]}):
        assert create(strict, host, **config).rule == "strict-fields"
        assert create(strict, {}, **config).rule == "no-gpu"
    assert create(strict, host, Labels={"x": "y"}).rule == "no-gpu"
    config = {"Labels": {"x": long}}
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu", **host}, mounts=(), **config)
    assert strict.judge(b"", "/v1.41/containers/c/start", "POST").rule == "strict-fields"


def test_logs_of_a_container_that_exists_may_be_as_the_engine_has_them(strict):
    """Its own settings (log-opts) show as the container's."""
    log = {"Type": "json-file", "Config": {"max-file": "1000"}}
    assert "max-file=1000" in create(strict, {"LogConfig": log}).message
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu", "LogConfig": log}, mounts=())
    assert strict.judge(b"", "/v1.41/containers/c/start", "POST").rule == "no-gpu"


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
        ("GET", "export", b""),
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


def test_a_link_gives_a_container_no_other_name(strict):
    """The Engine takes its alias for a part of a path, so it could be any name of somebody else's."""
    for alias in ("db:db", "db:../0123456789ab"):
        assert create(strict, {"Links": [alias]}).rule == "strict-fields"
    assert create(strict, {"Links": None}).allow
