"""What real Docker Engines and clients sent, against what we decode, decide and answer.

`recorded/engine-VERSION.jsonl` has one request per line, as it came over the plugin's socket (body byte for byte),
recorded from Debian 12's Engine 20.10.24 with an authorization and volume plugin named `cgtest`; `scenario` is
`CLIENT/WHAT` (28 and 20: the Docker CLI of that version, raw: curl), `client` its version.
"""

import base64
import gc
import json
import re
from pathlib import Path

import msgspec
import pytest

from convgpu.authz.facts.owners import Owners
from convgpu.authz.judge import Judge
from convgpu.authz.ports import GpuPath, HostFacts, Ports
from convgpu.authz.requests.routes import route
from convgpu.authz.site.rules import Rules
from convgpu.client.scheduler import Scheduler
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.authorization_status import SchedulerRecords
from convgpu.plugin.server.app import create_app
from convgpu.plugin.settings import Settings

# The docker library leaves a socket that it could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True, scope="module")
def collected():
    yield
    gc.collect()  # here, and not in somebody else's test


RECORDED = Path(__file__).parent / "recorded"
REQUESTS = [json.loads(line) for line in (RECORDED / "engine-20.10.24.jsonl").read_text().splitlines()]

RULES = {
    "create-plain": "no-gpu",
    "create-gpus-all": "gpu-needs-limit",
    "create-gpus-device": "gpu-needs-limit",
    "create-device": "gpu-needs-limit",
    "create-cdi": "gpu-needs-limit",
    "create-bind": "gpu-needs-limit",
    "create-gpus-mount": "limited",
    # Typed before the plugin asked for the variable LD_PRELOAD.
    "create-gpus-anonymous": "hook-not-loaded",
    "create-gpus-new-named": "hook-not-loaded",
    "create-gpus-named": "hook-not-loaded",
    "create-gpus-named-mount": "hook-not-loaded",
    "create-gpus-local-volume": "gpu-needs-limit",
    "run": "limited",
    "cp": "limited",
    "volume-create": "nothing-to-judge",
    "volume-create-refused": "nothing-to-judge",
    "percent-encoded": "gpu-needs-limit",
    "encoded-slash": "gpu-needs-limit",
    "absolute": "gpu-needs-limit",
    "no-version": "gpu-needs-limit",
    "chunked": "gpu-needs-limit",
    "top-level": "gpu-needs-limit",
    "long-s": "gpu-needs-limit",
    "trailing": "body-ambiguous",
    "twice": "body-ambiguous",
    "over-1-MiB": "body-withheld",
    "no-body": "body-withheld",
}


def requests_of(path):
    return [pytest.param(each, id=each["scenario"]) for each in REQUESTS if each["path"] == path]


class RecordingScheduler(Scheduler):
    def __init__(self):
        self.asked = []

    def request(self, op, **fields):
        self.asked.append({"op": op, **fields})
        lists = {"containers": {"containers": []}, "devices": {"devices": [], "policy": ""}}
        return {"mount": {"mountpoint": "/m"}, **lists}.get(op, {})

    def ask_json(self, request):
        return json.dumps(self.request(**msgspec.to_builtins(request))).encode()


def test_every_call_of_the_wire_is_recorded():
    # All but Path, which no scenario made the Engine ask.
    recorded = {each["path"] for each in REQUESTS}
    volume = {wire.CREATE, wire.REMOVE, wire.MOUNT, wire.UNMOUNT, wire.GET, wire.LIST, wire.CAPABILITIES}
    assert recorded == volume | {wire.ACTIVATE, wire.AUTHORIZE_REQUEST, wire.AUTHORIZE_RESPONSE}


def test_the_engine_names_no_content_type_and_no_host():
    assert [each for each in REQUESTS if "Content-Type" in each["headers"] or each["headers"]["Host"]] == []


class RecordedEngine:
    """The Engine at the time of the recording."""

    def volume(self, name):
        drivers = {"v28": "cgtest:latest", "v20": "cgtest:latest", "somelocal": "local"}
        return {"Driver": drivers[name], "Options": None} if name in drivers else None

    def image(self, _name):
        return {"Config": {"Env": None}}

    def facts(self):
        return HostFacts("/var/lib/docker", "runc")


class RecordedDevices:
    """The host at the time of the recording."""

    def resolve(self, path):
        return path

    def gpu_at(self, paths):
        return next((GpuPath(path) for path in paths if path.startswith("/dev/nvidia")), None)

    def is_gpu_number(self, major, _minor=None):
        return major == 195


@pytest.mark.parametrize("recorded", requests_of(wire.AUTHORIZE_REQUEST))
def test_each_call_gets_its_verdict(recorded, tmp_path):
    question = wire.decode_authorization(recorded["body"].encode())
    scenario = recorded["scenario"].partition("/")[2]
    call = route(question.method, question.uri)
    if question.uri == "/_ping":
        assert call is None
        return
    ports = Ports(RecordedEngine(), RecordedDevices(), SchedulerRecords(RecordingScheduler()))
    judge = Judge("cgtest", ports, Owners(tmp_path / "owners"))
    assert judge.judge(call, question.body(), question.user, Rules()).rule == RULES[scenario]


def test_every_rule_was_met():
    met = {each["scenario"].partition("/")[2] for each in REQUESTS if each["path"] == wire.AUTHORIZE_REQUEST}
    assert met == RULES.keys()


def test_authorization_bodies_are_what_the_client_sent():
    (recorded,) = [each for each in REQUESTS if each["scenario"] == "raw/chunked"]
    question = wire.decode_authorization(recorded["body"].encode())
    inner = json.loads(base64.b64decode(question.encoded_body))
    assert (question.method, question.uri) == ("POST", "/v1.41/containers/create")
    assert inner["HostConfig"] == {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]}


@pytest.mark.parametrize("recorded", requests_of(wire.CREATE))
def test_create_decodes(recorded):
    decoded = wire.decode_create(recorded["body"].encode())
    assert decoded.options in ({"memory": "2g"}, {"memory": "20GB"}, {"memory": "1g"})
    assert re.fullmatch(r"v28|w28|[0-9a-f]{64}", decoded.name)


def test_the_life_of_an_anonymous_volume():
    scheduler = RecordingScheduler()
    client = create_app(scheduler, Settings(name="cgtest", read_only="no")).test_client()
    life = [each for each in REQUESTS if each["scenario"] == "28/run" and each["path"].startswith("/VolumeDriver.")]
    answers = [client.post(each["path"], data=each["body"]) for each in life]
    # The first asks for a volume that is not there yet; the Engine takes the error for "no".
    statuses = [(each["path"], answer.status_code) for each, answer in zip(life, answers, strict=True)]
    assert statuses == [
        (wire.GET, 500),
        (wire.CREATE, 200),
        (wire.MOUNT, 200),
        (wire.UNMOUNT, 200),
        (wire.REMOVE, 200),
    ]
    name = json.loads(life[0]["body"])["Name"]
    (identifier,) = {json.loads(each["body"])["ID"] for each in life if each["path"] in {wire.MOUNT, wire.UNMOUNT}}
    assert re.fullmatch("[0-9a-f]{64}", identifier)
    assert scheduler.asked == [
        {"op": "containers", "name": name},
        {"op": "containers", "name": name},  # whether a container has such an ID
        {"op": "create", "name": name, "options": {"memory": "2g"}},
        {"op": "mount", "name": name, "id": identifier},
        {"op": "unmount", "name": name, "id": identifier},
        {"op": "remove", "name": name},
    ]


@pytest.mark.parametrize("recorded", [pytest.param(each, id=each["scenario"]) for each in REQUESTS])
def test_no_recorded_request_is_a_bug_of_ours(recorded, caplog, tmp_path):
    client = create_app(RecordingScheduler(), Settings(name="cgtest", read_only="no", directory=tmp_path)).test_client()
    answer = client.post(recorded["path"], data=recorded["body"], headers=recorded["headers"])
    assert isinstance(json.loads(answer.data), dict)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
