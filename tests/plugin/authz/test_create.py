"""Creation of containers: judged calls, requests for a GPU, and forms of a limit."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convgpu.authz.requests import go_json
from convgpu.authz.requests.routes import route
from convgpu.authz.verdict import NOT_JUDGED

GPUS = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
OURS = {
    "Type": "volume",
    "Target": "/run/convgpu",
    "VolumeOptions": {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "2g"}}},
}
PRELOAD = {"Env": ["LD_PRELOAD=/run/convgpu/libconvgpu.so"]}


@pytest.fixture
def rule(harness):
    def judged(host, **config):
        return harness.judge({"Image": "i", "HostConfig": host, **config}).rule

    return judged


@pytest.mark.parametrize(
    "uri",
    [
        "/containers/create",
        "/v1.41/containers/create",
        "/v1.41/containers/create?name=x",
        "/v1.41/containers/create?x=/auth",
        "/v01.41/containers/create",
        "/v1.41.0/containers/create",
        "/v1.41/containers/%63reate",
        "/v1.41/containers%2Fcreate",
        "/%76%31.41/containers/create",
        "http://docker/v1.41/containers/create",
        "HTTP://docker/containers/create",
        "http://[docker/containers/create",
        "//v1.41//containers//create/",
    ],
)
def test_every_spelling_of_create_is_judged(harness, uri):
    assert harness.judge({"HostConfig": GPUS}, uri).rule == "gpu-needs-limit"


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", "/v1.41/containers/create"),
        ("HEAD", "/_ping"),
        ("POST", "/v1.41/containers/create/stop"),
        ("POST", "/v1.41/volumes/prune"),
        ("POST", "/v1.41/containers/abc/wait"),
        ("POST", "/v1.41/containers/abc/attach?x=/containers/create"),
        ("DELETE", "/v1.41/containers/create"),
        ("POST", "/v1.41/commit?container=x"),
        ("POST", "/v1.41/images/create?fromImage=x"),
        ("GET", "/v1.41/plugins/convgpu/json"),
    ],
)
def test_other_calls_pass_unread(harness, method, uri):
    assert harness.judge(b"no JSON", uri, method) == NOT_JUDGED
    assert harness.engine.asked == []


@pytest.mark.parametrize(
    "host",
    [
        {},
        None,
        {"DeviceRequests": []},
        {"DeviceRequests": None, "Devices": None, "Binds": None, "Mounts": None},
        {"Devices": [{"PathOnHost": "/dev/fuse"}, {"PathOnHost": "/dev/nvme0"}, None]},
        {"Binds": ["/etc/hosts:/x:ro", "data:/data", "/anonymous", None], "Mounts": [{"Type": "tmpfs"}]},
        {"Mounts": [{"Type": "bind", "Source": "/dev/null", "Target": "/n"}]},
    ],
)
def test_a_container_without_gpu_passes(rule, host):
    assert rule(host) == "no-gpu"


def test_a_plain_container_is_judged_without_queries(harness, rule):
    assert rule({"NetworkMode": "host", "Tmpfs": {"/tmp": ""}}, Env=["A=b"], Labels={"x": "y"}) == "no-gpu"
    assert harness.engine.asked == []
    assert harness.scheduler.asked == 0


ASKING = {
    "gpus": GPUS,
    "cdi request": {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]},
    "null request": {"DeviceRequests": [None]},
    "device": {"Devices": [{"PathOnHost": "/dev/nvidia0"}]},
    "control device": {"Devices": [{"PathOnHost": "/dev/fuse"}, {"PathOnHost": "/dev/nvidiactl"}]},
    "dots": {"Devices": [{"PathOnHost": "/dev/../dev/./nvidia0"}]},
    "slashes": {"Devices": [{"PathOnHost": "//dev//nvidia0"}]},
    "all devices": {"Devices": [{"PathOnHost": "/dev/"}]},
    "cdi device": {"Devices": [{"PathOnHost": "nvidia.com/gpu=all"}]},
    "bind": {"Binds": ["/dev/nvidia0:/dev/nvidia0"]},
    "bind mount": {"Mounts": [{"Type": "bind", "Source": "/dev/nvidia-uvm", "Target": "/dev/x"}]},
    "cgroup rule": {"DeviceCgroupRules": ["c 195:* rwm"]},
    "all of the cgroup": {"DeviceCgroupRules": ["a *:* rwm"]},
    "device list": {"Binds": ["/dev/null:/var/run/nvidia-container-devices/all"]},
    "runtime": {"Runtime": "nvidia"},
    "annotation": {"Annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"}},
}
VISIBLE = "NVIDIA_VISIBLE_DEVICES=all"


@pytest.mark.parametrize("host", ASKING.values(), ids=ASKING.keys())
def test_a_gpu_without_volume_is_denied(rule, host):
    assert rule(host, Env=[VISIBLE]) == "gpu-needs-limit"


@pytest.mark.parametrize("host", ASKING.values(), ids=ASKING.keys())
def test_a_gpu_with_volume_passes(rule, host):
    host = {**host, "Mounts": [*host.get("Mounts", []), OURS]}
    assert rule(host, Env=[VISIBLE, *PRELOAD["Env"]]) == "limited"


@pytest.mark.parametrize(
    ("runtime", "default", "image", "variables", "expected"),
    [
        ("", "runc", {}, [VISIBLE], "no-gpu"),
        ("", "nvidia", {}, [VISIBLE], "gpu-needs-limit"),
        ("runc", "nvidia", {}, [VISIBLE], "no-gpu"),
        ("nvidia", "runc", {"Env": [VISIBLE]}, [], "gpu-needs-limit"),
        ("nvidia", "runc", {"Env": [VISIBLE]}, ["NVIDIA_VISIBLE_DEVICES=void"], "no-gpu"),
        ("mine", "runc", {"Env": ["CUDA_VERSION=7"]}, [], "gpu-needs-limit"),
        ("mine", "runc", {"Env": ["CUDA_VERSION=12", "NVIDIA_REQUIRE_CUDA=x"]}, [], "no-gpu"),
        ("mine", "runc", {}, [], "no-gpu"),
        ("nvidia", "runc", {}, ["DOCKER_RESOURCE_GPU=GPU-1"], "gpu-needs-limit"),
        ("nvidia", "runc", {}, ["DOCKER_RESOURCE_GPUMEM=2048"], "no-gpu"),
        ("nvidia", "runc", {}, [VISIBLE, "NVIDIA_VISIBLE_DEVICES"], "gpu-needs-limit"),
        ("nvidia", "runc", {}, ["NVIDIA_VISIBLE_DEVICES=none", VISIBLE], "gpu-needs-limit"),
    ],
)
def test_variables_count_where_a_runtime_reads_them(harness, rule, runtime, default, image, variables, expected):
    harness.engine.runtime, harness.engine.images["i"] = default, {"Config": image}
    assert rule({"Runtime": runtime}, Env=variables) == expected


def mount_of(driver):
    return {"Mounts": [{**OURS, "VolumeOptions": {"DriverConfig": {"Name": driver, "Options": {"memory": "2g"}}}}]}


@pytest.mark.parametrize(
    ("host", "config"),
    [
        (mount_of("convgpu"), {}),
        (mount_of("convgpu:latest"), {}),
        ({"VolumeDriver": "convgpu"}, {"Volumes": {"/run/convgpu": {}}}),
        ({"VolumeDriver": "convgpu:latest", "Binds": ["/run/convgpu"]}, {}),
        ({"VolumeDriver": "convgpu", "Binds": ["mine:/run/convgpu"]}, {}),
    ],
)
def test_forms_of_a_volume(rule, host, config):
    config = {**config, "Env": ["CONVGPU_MEMORY=2g", *PRELOAD["Env"]]}
    assert rule({**GPUS, **host}, **config) == "limited"


@pytest.mark.parametrize(
    ("host", "config"),
    [
        (mount_of("local"), {}),
        (mount_of("convgpu2"), {}),
        (mount_of(""), {}),
        ({"Mounts": [{**OURS, "Type": "Volume"}]}, {}),
        ({"VolumeDriver": "convgpu"}, {}),
        ({"VolumeDriver": "convgpu", "Binds": ["/srv:/run/convgpu"]}, {}),
        ({"VolumeDriver": "local"}, {"Volumes": {"/run/convgpu": {}}}),
        ({"Binds": ["other:/run/convgpu"]}, {}),
        ({"VolumesFrom": ["other"]}, {}),
    ],
)
def test_other_volumes_are_no_limit(harness, rule, host, config):
    harness.engine.volumes["other"] = {"Driver": "rclone", "Options": {}}
    # The options of OURS are not possible for another driver, so another refusal may come first.
    assert rule({**GPUS, **host}, **PRELOAD, **config) in {"gpu-needs-limit", "local-volume"}


@pytest.mark.parametrize(
    "host",
    [
        {"Binds": ["/srv:/srv", "mine:/run/convgpu:ro"]},
        {"Mounts": [{"Type": "volume", "Source": "mine", "Target": "/run/convgpu"}]},
    ],
)
def test_an_existing_volume_is_looked_up(harness, rule, host):
    harness.engine.volumes["mine"] = {"Driver": "convgpu:latest", "Options": {"memory": "2g"}}
    assert rule({**GPUS, **host}, **PRELOAD) == "limited"
    assert ("volume", "mine") in harness.engine.asked


def test_without_the_engine_the_scheduler_knows_our_volumes(harness, rule):
    harness.engine.down = True
    harness.scheduler.limits["mine"] = 2 << 30
    assert rule({**GPUS, "Binds": ["mine:/run/convgpu"]}, **PRELOAD) == "limited"
    assert rule({**GPUS, "Binds": ["other:/run/convgpu"]}, **PRELOAD) == "gpu-needs-limit"


def test_a_name_with_registry_and_tag(harness, rule):
    harness.name = "localhost:5055/rdk/convgpu:1.0"
    assert rule({**GPUS, **mount_of(harness.name)}, **PRELOAD) == "limited"
    for driver in ("localhost:5055/rdk/convgpu", "localhost:5055/rdk/convgpu:latest", "localhost"):
        assert rule({**GPUS, **mount_of(driver)}, **PRELOAD) == "gpu-needs-limit"


@pytest.mark.parametrize("driver", ["convgpu", "convgpu:latest"])
def test_a_missing_tag_means_latest(harness, rule, driver):
    for harness.name in ("convgpu", "convgpu:latest"):
        assert rule({**GPUS, **mount_of(driver)}, **PRELOAD) == "limited"
    harness.name = "convgpu:2"
    assert rule({**GPUS, **mount_of(driver)}, **PRELOAD) == "gpu-needs-limit"


@pytest.mark.parametrize("driver", ["convgpu2", "convgpu:2", "convgpu-demo", "x/convgpu", "convgp"])
def test_a_similar_name_is_another_plugin(rule, driver):
    assert rule({**GPUS, **mount_of(driver)}, **PRELOAD) == "gpu-needs-limit"


def test_the_default_runtime_may_inject_the_limit_of_a_container_with_gpus(harness, rule):
    harness.engine.runtime = "convgpu"
    assert rule(GPUS, Env=["CONVGPU_MEMORY=2g"]) == "injected"
    assert rule({**GPUS, "Runtime": "runc"}) == "gpu-needs-limit"


@pytest.mark.parametrize(
    "body",
    [
        b'{"hostconfig": {"devicerequests": [{}]}}',
        b'{"HOSTCONFIG": {"DEVICEREQUESTS": [{}]}}',
        '{"Ho\u017ftConfig": {"DeviceRequests": [{}]}}'.encode(),
        '{"HostConfig": {"Devices": [{"PathOnHo\u017ft": "/dev/nvidia0"}]}}'.encode(),
        b'{"Ho\\u017ftConfig": {"DeviceReque\\u0073ts": [{}]}}',
        b'{"DeviceRequests": [{}]}',
        b'{"DeviceRequests": [{}], "HostConfig": null}',
        b'{"Binds": ["/dev/nvidia0:/dev/nvidia0"]}',
    ],
)
def test_names_are_read_as_the_engine_reads_them(harness, body):
    assert harness.judge(body).rule == "gpu-needs-limit"


def test_names_that_the_engine_does_not_read_mean_nothing(harness):
    # Python's casefold turns U+FB06 into "st"; Go does not, so this is no HostConfig and its volume no volume.
    body = {"Ho\ufb06Config": {"Mounts": [OURS]}, "DeviceRequests": [{}], **PRELOAD}
    assert harness.judge(body).rule == "gpu-needs-limit"


def test_top_level_fields_are_honoured_like_a_host_config(harness):
    assert harness.judge({**GPUS, "Mounts": [OURS], **PRELOAD}).rule == "limited"
    assert harness.judge({**GPUS, "HostConfig": {}}).rule == "no-gpu"


@pytest.mark.parametrize(
    "body",
    [
        b'{"HostConfig": {}, "HostConfig": {"DeviceRequests": [{}]}}',
        b'{"HostConfig": {"DeviceRequests": [{}]}, "hostconfig": {}}',
        '{"HostConfig": {}, "Ho\u017ftConfig": {}}'.encode(),
        b'{"HostConfig": {"DeviceRequests": [{}], "deviceRequests": null}}',
        b'{"Image": "i"} {"HostConfig": {"DeviceRequests": [{}]}}',
        b'{"Image": "i"} x',
        b'\xef\xbb\xbf{"Image": "i"}',
        b'{"Image": "\xff"}',
        b'{"Image": NaN}',
        b'{"Image": "i", "Memory": ' + b"9" * 5000 + b"}",
        b'{"a": ' * 100_000,
        b"[]",
        b"null",
        b"not JSON",
        b'{"HostConfig": []}',
        b'{"HostConfig": {"DeviceRequests": {}}}',
        b'{"HostConfig": {"DeviceRequests": ["gpu"]}}',
        b'{"HostConfig": {"Devices": [{"PathOnHost": 1}]}}',
        b'{"HostConfig": {"Binds": "/dev/nvidia0:/x"}}',
        b'{"HostConfig": {"Binds": [{}]}}',
        b'{"HostConfig": {"Privileged": "true"}}',
        b'{"Labels": {"a": 1}}',
    ],
)
@pytest.mark.parametrize("uri", ["/containers/create", "/containers/c/exec", "/volumes/create", "/services/create"])
def test_an_ambiguous_body_is_denied(harness, body, uri):
    verdict = harness.judge(body, uri)
    if uri == "/containers/create":
        assert verdict.message.startswith("body-ambiguous: ")
    # Elsewhere a HostConfig or an Image means nothing.
    assert verdict.rule in {"body-ambiguous", "nothing-to-judge", "no-gpu"}


@pytest.mark.parametrize("body", [b"", b"{}", b" {} "])
@pytest.mark.parametrize(
    "uri",
    ["/containers/create", "/containers/c/exec", "/containers/c/update", "/volumes/create", "/services/x/update"],
)
def test_a_withheld_body_is_denied(harness, body, uri):
    verdict = harness.judge(body, uri)
    assert (verdict.allow, verdict.rule) == (False, "body-withheld")


def test_maps_with_names_of_the_users_are_not_folded(harness):
    body = {"Labels": {"a": "1", "A": "2"}, "HostConfig": {"Sysctls": {"x": "", "X": ""}}}
    assert harness.judge(body).rule == "no-gpu"


def test_the_denial_shows_the_line_to_type(harness):
    harness.name = "limits"
    assert harness.judge({"HostConfig": GPUS}).message == (
        "gpu-needs-limit: the container asks for a GPU (--gpus, or a CDI device) and carries no ConvGPU volume, "
        "so nothing limits its GPU memory.\n"
        "Type: docker run --gpus all "
        "--mount type=volume,volume-driver=limits,volume-opt=memory=2g,dst=/run/convgpu "
        "-e LD_PRELOAD=/run/convgpu/libconvgpu.so IMAGE  or: convgpu run --gpu-memory 2g IMAGE"
    )


_FIELDS = st.sampled_from(
    ["DeviceRequests", "Devices", "Mounts", "Binds", "VolumeDriver", "PathOnHost", "Type", "CapAdd", "PidMode", "Env"]
)
_TEXTS = st.sampled_from(["", "/dev/nvidia0", "volume", "convgpu", "mine:/x", "/x", "nvidia.com/gpu=all", "ALL"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=3),
    max_leaves=10,
)
_URIS = st.sampled_from(["/containers/create", "/containers/c/exec", "/volumes/create", "/services/create"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["HostConfig", "Volumes"]) | _FIELDS, _JSON), _URIS)
def test_any_document_gets_a_verdict(harness, body, uri):
    verdict = harness.judge(body, uri)
    assert verdict.allow is (verdict.rule in {"no-gpu", "limited", "nothing-to-judge", "no-such-container"})
    assert bool(verdict.message) is not verdict.allow
    assert verdict.message.count("\n") <= 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary())
def test_any_bytes_get_a_verdict(harness, body):
    assert harness.judge(body).rule in {"no-gpu", "body-withheld", "body-ambiguous"}


def test_folding_joins_only_what_go_joins():
    joined = {chr(code): go_json.fold(chr(code)) for code in range(0x110000) if go_json.fold(chr(code)) != chr(code)}
    capitals = {chr(code): chr(code).lower() for code in range(ord("A"), ord("Z") + 1)}
    assert joined == {**capitals, "\u017f": "s", "\u212a": "k"}


@pytest.mark.parametrize("part", ["/", "/start", "a/", "/v1", "%2F", "/containers/x"])
def test_the_time_for_an_address_is_linear(part):
    # Linear: cubic would be hours.
    assert route("POST", "/containers/" + part * (8000 // len(part)) + "/nothing") is None


def test_a_body_of_five_megabytes_is_judged(harness):
    body = json.dumps({"Image": "i", "Env": ["A=" + "x" * (5 << 20)], "HostConfig": GPUS}).encode()
    assert harness.judge(body).rule == "gpu-needs-limit"


@pytest.mark.parametrize(
    ("ids", "options", "rule"),
    [
        (["1"], {"memory": "2g"}, "gpu-drained"),
        (["0", "GPU-2"], {"memory": "2g"}, "gpu-drained"),
        (["0"], {"memory": "2g"}, "limited"),
        (["1"], {"memory": "2g", "gpus": "all"}, "limited"),
        (["1"], {"memory": "GPU-2:2g"}, "limited"),  # the volume refuses that
        ([], {"memory": "2g"}, "limited"),
    ],
)
def test_a_drained_gpu_that_the_container_names_is_refused_at_create(harness, ids, options, rule):
    harness.scheduler.drained = {"GPU-2"}
    request = {"Driver": "", "Count": 0 if ids else -1, "DeviceIDs": ids, "Capabilities": [["gpu"]]}
    mount = {**OURS, "VolumeOptions": {"DriverConfig": {"Name": "convgpu", "Options": options}}}
    verdict = harness.judge({**PRELOAD, "HostConfig": {"DeviceRequests": [request], "Mounts": [mount]}})
    assert verdict.rule == rule
    if rule == "gpu-drained":
        assert verdict.message == (
            "gpu-drained: GPU 1 is drained, and --gpus gives the container no other in its place.\n"
            "Name another: --gpus device=0. To wait for it: volume-opt=gpus=all. To put it back: convgpu drain 1 --undo"
        )
