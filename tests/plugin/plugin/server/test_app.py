"""The plugin's HTTP, with Flask's client: what Docker asks, and what it gets."""

import json

import pytest

from convgpu.client.scheduler import SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.body_limits import MAX_BODY
from convgpu.protocol.folder_names import folder_of

UUID = "GPU-00000000-0000-0000-0000-000000000001"
VOLUME_CALLS = [wire.CREATE, wire.REMOVE, wire.MOUNT, wire.UNMOUNT, wire.PATH, wire.GET]


def post(docker, path, document=None, raw=None):
    data = raw if raw is not None else json.dumps(document).encode()
    response = docker.post(path, data=data)
    assert response.content_type == wire.CONTENT_TYPE
    return response.status_code, json.loads(response.data)


def test_activate_names_both_interfaces(docker):
    assert post(docker, wire.ACTIVATE, raw=b"") == (200, {"Implements": ["VolumeDriver", "authz"]})


def test_capabilities_are_local(docker):
    assert post(docker, wire.CAPABILITIES, {}) == (200, {"Capabilities": {"Scope": "local"}})


def test_life_of_a_volume(docker, scheduler):
    create = {"Name": "v", "Opts": {"memory": "2g"}}
    use = {"Name": "v", "ID": "a" * 64}
    assert post(docker, wire.CREATE, create) == (200, {"Err": ""})
    assert post(docker, wire.MOUNT, use) == (200, {"Mountpoint": "/simulated/v", "Err": ""})
    assert post(docker, wire.UNMOUNT, use) == (200, {"Err": ""})
    assert post(docker, wire.REMOVE, {"Name": "v"}) == (200, {"Err": ""})
    assert scheduler.asked == [
        {"op": "create", "name": "v", "options": {"memory": "2g"}},
        {"op": "mount", "name": "v", "id": "a" * 64},
        {"op": "unmount", "name": "v", "id": "a" * 64},
        {"op": "remove", "name": "v"},
    ]


@pytest.mark.parametrize("body", [{"Name": "v"}, {"Name": "v", "Opts": None}, {"Name": "v", "Opts": {}}])
def test_create_without_options(docker, scheduler, body):
    assert post(docker, wire.CREATE, body) == (200, {"Err": ""})
    assert scheduler.asked == [{"op": "create", "name": "v"}]


def test_create_twice_is_no_error(docker):
    create = {"Name": "v", "Opts": {"memory": "2g"}}
    assert post(docker, wire.CREATE, create) == (200, {"Err": ""})
    assert post(docker, wire.CREATE, create) == (200, {"Err": ""})


def described():
    return {
        "Name": "v",
        "Mountpoint": "/simulated/v",
        "CreatedAt": "2023-11-14T22:13:20+00:00",
        "Status": {
            "state": "created",
            "container": None,
            "mounts": 0,
            "processes": 0,
            "waiting": 0,
            "devices": [
                {
                    "uuid": UUID,
                    "limit": "2GiB",
                    "grant": "1GiB",
                    "usage": "512MiB",
                    "limit_bytes": 2147483648,
                    "grant_bytes": 1073741824,
                    "usage_bytes": 536870912,
                }
            ],
        },
    }


def test_get_list_and_path_describe_a_volume(docker):
    assert post(docker, wire.LIST, {}) == (200, {"Volumes": [], "Err": ""})
    post(docker, wire.CREATE, {"Name": "v", "Opts": {}})
    volume = described()
    assert post(docker, wire.GET, {"Name": "v"}) == (200, {"Volume": volume, "Err": ""})
    assert post(docker, wire.LIST, raw=b"") == (200, {"Volumes": [volume], "Err": ""})
    assert post(docker, wire.PATH, {"Name": "v"}) == (200, {"Mountpoint": volume["Mountpoint"], "Err": ""})


@pytest.mark.parametrize("path", [wire.GET, wire.PATH])
def test_an_unknown_volume_is_an_error(docker, path):
    assert post(docker, path, {"Name": "w"}) == (500, {"Err": "there is no ConvGPU volume w"})


def test_a_refusal_reaches_the_user_word_for_word(docker, scheduler):
    status, answer = post(docker, wire.CREATE, {"Name": "v", "Opts": {"memroy": "2g"}})
    text = "unknown option: the known ones are memory, gpus, wait"
    assert (status, answer) == (500, {"Err": text})
    assert scheduler.volumes == {}


def test_remove_of_a_mounted_volume_is_refused(docker):
    post(docker, wire.CREATE, {"Name": "v", "Opts": {}})
    post(docker, wire.MOUNT, {"Name": "v", "ID": "1"})
    text = "volume v is in use: stop its container first"
    assert post(docker, wire.REMOVE, {"Name": "v"}) == (500, {"Err": text})


@pytest.mark.parametrize("path", VOLUME_CALLS)
def test_an_empty_body_is_an_error_and_changes_nothing(docker, scheduler, path):
    assert post(docker, path, raw=b"") == (500, {"Err": wire.EMPTY_BODY})
    assert scheduler.asked == []


@pytest.mark.parametrize("path", VOLUME_CALLS)
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{", "the request is not JSON"),
        (b"\xff\xfe", "the request is not JSON"),
        (b"[" * 100_000, "the request is not JSON"),
        (b"[]", "the request is not a JSON object"),
        (b"{}", "the request names no Name"),
        (b'{"Name": ""}', "the request names no Name"),
        (b'{"Name": 7}', "the request names no Name"),
    ],
)
def test_a_malformed_body_is_an_error_and_changes_nothing(docker, scheduler, path, raw, text):
    status, answer = post(docker, path, raw=raw)
    assert status == 500
    assert answer["Err"].startswith(text)
    assert scheduler.asked == []


@pytest.mark.parametrize("path", [wire.MOUNT, wire.UNMOUNT])
def test_a_mount_without_id_is_an_error(docker, scheduler, path):
    assert post(docker, path, {"Name": "v"}) == (500, {"Err": "the request names no ID"})
    assert scheduler.asked == []


@pytest.mark.parametrize("options", [[], "memory=2g", {"memory": 2}, {"memory": None}])
def test_options_must_be_text(docker, scheduler, options):
    answer = post(docker, wire.CREATE, {"Name": "v", "Opts": options})
    assert answer == (500, {"Err": "Opts must be a map of text to text"})
    assert scheduler.asked == []


def test_a_scheduler_that_is_gone_is_an_error(docker, scheduler):
    scheduler.failure = SchedulerUnavailable("the scheduler does not answer")
    assert post(docker, wire.LIST, {}) == (500, {"Err": "the scheduler does not answer"})


def test_an_answer_of_the_wrong_shape_is_logged_and_an_error(docker, scheduler, caplog):
    scheduler.answers["containers"] = {"containers": [{"name": "v"}]}
    assert post(docker, wire.LIST, {}) == (500, {"Err": "the plugin failed; its log says why"})
    assert "missing required field `mountpoint` - at `$.containers[0]`" in caplog.text


@pytest.mark.parametrize("path", ["/VolumeDriver.Nothing", "/", "/VolumeDriver.Create/x"])
def test_unknown_paths(docker, path):
    assert post(docker, path, {}) == (404, {"Err": f"POST {path}: Not Found"})


def test_wrong_method(docker):
    response = docker.get(wire.CREATE)
    assert response.status_code == 405
    assert json.loads(response.data) == {"Err": f"GET {wire.CREATE}: Method Not Allowed"}


def test_a_request_that_is_too_long(docker, scheduler):
    answer = post(docker, wire.CREATE, raw=b" " * (MAX_BODY + 1))
    assert answer == (413, {"Err": f"the request is longer than {MAX_BODY} bytes"})
    assert scheduler.asked == []


def test_administration(docker, scheduler):
    post(docker, wire.CREATE, {"Name": "v", "Opts": {}})
    assert docker.get("/v1/devices").json == scheduler._devices()
    assert docker.get("/v1/containers").json == {"containers": [scheduler._container("v")]}
    assert docker.get("/v1/containers/v").json == scheduler._container("v")
    assert docker.get("/v1/events?since=7").json == {"events": [], "next": 7}
    # What `convgpu wait` and `convgpu notify` ask first: where the events end.
    assert docker.get(f"/v1/events?since={1 << 62}").status_code == 200
    assert docker.get("/v1/events").json == {"events": [], "next": 0}


@pytest.mark.parametrize(
    ("path", "failure", "status", "code"),
    [
        ("/v1/containers/w", None, 404, "unknown"),
        ("/v1/events?since=-1", None, 400, "malformed"),
        ("/v1/events?since=1e3", None, 400, "malformed"),
        (f"/v1/events?since={'9' * 20}", None, 400, "malformed"),
        ("/v1/events?since=%D9%A1", None, 400, "malformed"),
        ("/v1/nothing", None, 404, "http"),
        ("/v1/devices", SchedulerUnavailable("gone"), 503, "unavailable"),
        ("/v1/devices", SchedulerRefused("busy", "no"), 409, "busy"),
        ("/v1/devices", SchedulerRefused("invalid", "no"), 400, "invalid"),
        ("/v1/devices", RuntimeError("bug"), 500, "internal"),
    ],
)
def test_errors_of_the_administration(docker, scheduler, path, failure, status, code):
    scheduler.failure = failure
    response = docker.get(path)
    assert (response.status_code, response.json["error"]["code"]) == (status, code)
    assert response.json["error"]["text"]


def test_changes_go_to_the_scheduler_as_they_are(docker, scheduler):
    scheduler.answers = {"set": {"devices": []}, "drain": {}, "policy": {"policy": "fifo"}, "history": {"events": []}}
    assert docker.post("/v1/containers/v/limits", data='{"memory": "4g"}').json == {"devices": []}
    assert docker.post("/v1/containers/v/limits", data='{"wait": "5m", "priority": "3"}').json == {"devices": []}
    assert docker.post("/v1/devices/GPU-a/drain", data='{"drained": true}').json == {}
    assert docker.post("/v1/policy", data='{"policy": "fifo"}').json == {"policy": "fifo"}
    assert docker.get("/v1/policy").json == {"policy": "fifo"}
    query = "container=v&kinds=paused&kinds=granted&after=1.5&limit=10"
    assert docker.get(f"/v1/history?{query}").json == {"events": []}
    assert docker.get("/v1/history").json == {"events": []}
    assert scheduler.asked == [
        {"op": "set", "name": "v", "memory": "4g"},
        {"op": "set", "name": "v", "wait": "5m", "priority": "3"},
        {"op": "drain", "device": "GPU-a", "drained": True},
        {"op": "policy", "policy": "fifo"},
        {"op": "policy"},
        {"op": "history", "container": "v", "kinds": ["paused", "granted"], "after": 1.5, "limit": 10},
        {"op": "history"},
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/containers/v/limits", ""),
        ("/v1/containers/v/limits", "[]"),
        ("/v1/containers/v/limits", '{"memory": 4}'),
        ("/v1/devices/GPU-a/drain", '{"drained": "yes"}'),
        ("/v1/policy", "{"),
        ("/v1/policy", '{"policy": null}'),
    ],
)
def test_a_change_without_what_it_needs_is_refused(docker, scheduler, path, body):
    response = docker.post(path, data=body)
    assert (response.status_code, response.json["error"]["code"]) == (400, "malformed")
    assert "the request's body must be a JSON object with" in response.json["error"]["text"]
    assert scheduler.asked == []


@pytest.mark.parametrize("query", ["after=soon", "after=nan", "limit=-1", "limit=1e3", "since=3"])
def test_a_question_about_the_past_that_is_not_understood_is_refused(docker, scheduler, query):
    response = docker.get(f"/v1/history?{query}")
    assert (response.status_code, response.json["error"]["code"]) == (400, "malformed")
    assert scheduler.asked == []


def test_a_volume_is_there_although_the_scheduler_does_not_answer(docker, scheduler, settings):
    # The Engine takes an error for "no such volume", and forgets the volume if that happens while it starts.
    scheduler.failure = SchedulerUnavailable("the scheduler does not answer")
    folder = settings.folders / folder_of("v")
    folder.mkdir(parents=True)
    status, answer = post(docker, wire.GET, {"Name": "v"})
    shown = answer["Volume"]
    assert (status, shown["Name"], shown["Mountpoint"]) == (200, "v", str(folder))
    assert shown["Status"] == {"state": "unknown", "reason": "the scheduler does not answer"}
    assert post(docker, wire.GET, {"Name": "w"}) == (500, {"Err": "the scheduler does not answer"})
    assert post(docker, wire.MOUNT, {"Name": "v", "ID": "1"}) == (500, {"Err": "the scheduler does not answer"})
