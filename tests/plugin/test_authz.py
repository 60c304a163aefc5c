"""The authorization decision: which calls are judged, what asks for a GPU, what counts as a ConvGPU volume."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgpu.plugin import authz, go_json

CREATE = "/v1.41/containers/create"
GPUS = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
OURS = {
    "Type": "volume",
    "Target": "/run/convgpu",
    "VolumeOptions": {"DriverConfig": {"Name": "convgpu", "Options": {"memory": "2g"}}},
}


def knows_nothing(_volume):
    return False


def must_not_ask(volume):
    raise AssertionError(volume)


def judged(body, uri=CREATE, method="POST", name="convgpu", knows_volume=knows_nothing):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return authz.judge(method, uri, raw, name, knows_volume)


def rule(host, knows_volume=knows_nothing, **config):
    return judged({"Image": "i", "HostConfig": host, **config}, knows_volume=knows_volume).rule


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
def test_create_is_judged_in_every_spelling(uri):
    assert judged({"HostConfig": GPUS}, uri=uri).rule == "gpu-needs-limit"


@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("GET", CREATE),
        ("HEAD", "/_ping"),
        ("POST", "/v1.41/containers/create/start"),
        ("POST", "/v1.41/volumes/create"),
        ("POST", "/v1.41/containers/abc/start"),
        ("POST", "/v1.41/containers/abc/exec?x=/containers/create"),
        ("DELETE", "/v1.41/containers/create"),
    ],
)
def test_everything_else_passes_unread(method, uri):
    assert judged(b"no JSON", uri=uri, method=method) == authz.NOT_JUDGED


@pytest.mark.parametrize(
    "host",
    [
        {},
        None,
        {"DeviceRequests": []},
        {"DeviceRequests": None, "Devices": None, "Binds": None, "Mounts": None},
        {"Devices": [{"PathOnHost": "/dev/fuse"}, {"PathOnHost": "/dev/nvme0"}, None]},
        {"Binds": ["/etc:/etc:ro", "data:/data", "/anonymous", None], "Mounts": [{"Type": "tmpfs"}]},
        {"Mounts": [{"Type": "bind", "Source": "/dev/null", "Target": "/n"}]},
    ],
)
def test_a_container_without_gpu_passes(host):
    assert rule(host, knows_volume=must_not_ask) == "no-gpu"


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
}


@pytest.mark.parametrize("host", ASKING.values(), ids=ASKING.keys())
def test_a_gpu_without_volume_is_denied(host):
    assert rule(host) == "gpu-needs-limit"


@pytest.mark.parametrize("host", ASKING.values(), ids=ASKING.keys())
def test_a_gpu_with_volume_passes(host):
    assert rule({**host, "Mounts": [*host.get("Mounts", []), OURS]}, must_not_ask) == "limited"


def mount_of(driver):
    return {"Mounts": [{"Type": "volume", "VolumeOptions": {"DriverConfig": {"Name": driver}}}]}


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
def test_forms_of_a_volume(host, config):
    assert rule({**GPUS, **host}, must_not_ask, **config) == "limited"


@pytest.mark.parametrize(
    ("host", "config"),
    [
        (mount_of("local"), {}),
        (mount_of("convgpu2"), {}),
        (mount_of(""), {}),
        ({"Mounts": [{**OURS, "Type": "bind"}]}, {}),
        ({"Mounts": [{**OURS, "Type": "Volume"}]}, {}),
        ({"VolumeDriver": "convgpu"}, {}),
        ({"VolumeDriver": "convgpu", "Binds": ["/etc:/run/convgpu"]}, {}),
        ({"VolumeDriver": "local"}, {"Volumes": {"/run/convgpu": {}}}),
        ({"Binds": ["other:/run/convgpu"]}, {}),
        ({"VolumesFrom": ["other"]}, {}),
    ],
)
def test_what_is_no_volume_of_ours(host, config):
    assert rule({**GPUS, **host}, **config) == "gpu-needs-limit"


@pytest.mark.parametrize(
    "host",
    [
        {"Binds": ["/etc:/etc", "mine:/run/convgpu:ro"]},
        {"Mounts": [{"Type": "volume", "Source": "mine", "Target": "/run/convgpu"}]},
    ],
)
def test_an_existing_volume_is_looked_up(host):
    asked = []

    def knows_volume(volume):
        asked.append(volume)
        return volume == "mine"

    assert rule({**GPUS, **host}, knows_volume) == "limited"
    assert asked == ["mine"]


def test_a_name_with_registry_and_tag():
    name = "localhost:5055/rdk/convgpu:1.0"
    for driver in (name, "localhost:5055/rdk/convgpu", "localhost:5055/rdk/convgpu:latest"):
        assert judged({"HostConfig": {**GPUS, **mount_of(driver)}}, name=name).rule == "limited"
    assert judged({"HostConfig": {**GPUS, **mount_of("localhost")}}, name=name).rule == "gpu-needs-limit"


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
def test_names_are_read_as_the_engine_reads_them(body):
    assert judged(body).rule == "gpu-needs-limit"


def test_names_that_the_engine_does_not_read_mean_nothing():
    # Python's casefold turns U+FB06 into "st"; Go does not, so this is no HostConfig and its volume no volume.
    assert judged({"Ho\ufb06Config": {"Mounts": [OURS]}, "DeviceRequests": [{}]}).rule == "gpu-needs-limit"


def test_top_level_fields_are_honoured_like_a_host_config():
    assert judged({**GPUS, "Mounts": [OURS]}).rule == "limited"
    assert judged({**GPUS, "HostConfig": {}}).rule == "no-gpu"


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
    ],
)
def test_what_can_be_read_in_two_ways_is_denied(body):
    verdict = judged(body)
    assert (verdict.allow, verdict.rule) == (False, "body-ambiguous")
    assert verdict.message.startswith("body-ambiguous: ")


@pytest.mark.parametrize("body", [b"", b"{}", b" {} "])
def test_a_withheld_body_is_denied(body):
    verdict = judged(body)
    assert (verdict.allow, verdict.rule) == (False, "body-withheld")


def test_maps_with_names_of_the_users_are_not_folded():
    body = {"Labels": {"a": "1", "A": "2"}, "HostConfig": {"Sysctls": {"x": "", "X": ""}}}
    assert judged(body).rule == "no-gpu"


def test_the_denial_shows_the_line_to_type():
    assert judged({"HostConfig": GPUS}, name="limits").message == (
        "gpu-needs-limit: the container asks for a GPU (--gpus, or a CDI device) and carries no ConvGPU volume, "
        "so nothing limits its GPU memory.\n"
        "Type: docker run --gpus all "
        "--mount type=volume,volume-driver=limits,volume-opt=memory=2g,dst=/run/convgpu "
        "-e LD_PRELOAD=/run/convgpu/libconvgpu.so IMAGE  or: convgpu run --gpu-memory 2g IMAGE"
    )


_FIELDS = st.sampled_from(["DeviceRequests", "Devices", "Mounts", "Binds", "VolumeDriver", "PathOnHost", "Type"])
_TEXTS = st.sampled_from(["", "/dev/nvidia0", "volume", "convgpu", "mine:/x", "/x", "nvidia.com/gpu=all"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["HostConfig", "Volumes"]) | _FIELDS, _JSON))
def test_any_document_gets_a_verdict(body):
    verdict = judged(body)
    assert verdict.allow is (verdict.rule in {"no-gpu", "limited"})
    assert bool(verdict.message) is not verdict.allow


@given(st.binary())
def test_any_bytes_get_a_verdict(body):
    assert judged(body).rule in {"no-gpu", "body-withheld", "body-ambiguous"}


def test_folding_joins_only_what_go_joins():
    joined = {chr(code): go_json.fold(chr(code)) for code in range(0x110000) if go_json.fold(chr(code)) != chr(code)}
    capitals = {chr(code): chr(code).lower() for code in range(ord("A"), ord("Z") + 1)}
    assert joined == {**capitals, "\u017f": "s", "\u212a": "k"}
