"""The authorization calls over HTTP: the envelope, and answers that are always answers."""

import base64
import gc
import json
from types import SimpleNamespace

import pytest

from convgpu.authz.ports import EngineUnreachable
from convgpu.authz.requests.callers import caller
from convgpu.authz.site.rules import parse_rules
from convgpu.authz.verdict import Refusal
from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.plugin.docker_api import wire
from convgpu.plugin.docker_api.authorization import PASS, Authorizer, pass_at_once
from convgpu.plugin.docker_api.body_limits import MAX_BODY
from convgpu.plugin.engine.facts import EngineView

# The docker library leaves a socket that it could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True, scope="module")
def collected():
    yield
    gc.collect()  # here, and not in somebody else's test


ALLOWED = {"Allow": True, "Msg": ""}


def ask(docker, document=None, raw=None, path=wire.AUTHORIZE_REQUEST):
    response = docker.post(path, data=raw if raw is not None else json.dumps(document).encode())
    assert (response.status_code, response.content_type) == (200, wire.CONTENT_TYPE)
    return json.loads(response.data)


def call(body=None, method="POST", uri="/v1.41/containers/create"):
    document = {"RequestMethod": method, "RequestUri": uri}
    if body is not None:
        document["RequestBody"] = base64.b64encode(json.dumps(body).encode()).decode()
    return document


def gpu(**host):
    env = ["LD_PRELOAD=/run/convgpu/libconvgpu.so"]
    return {"Image": "i", "Env": env, "HostConfig": {"DeviceRequests": [{"Count": -1}], **host}}


def test_a_call_about_something_else_passes(docker, scheduler):
    assert ask(docker, call(method="HEAD", uri="/_ping")) == ALLOWED
    assert ask(docker, call({"Image": "i", "HostConfig": {}})) == ALLOWED
    assert scheduler.asked == []


def test_the_engine_is_asked_no_more_than_it_can_send_back_in_one_piece():
    class Nobody:
        def ask(self, question):
            return question(SimpleNamespace(inspect_container=len, inspect_volume=len, inspect_image=len))

    view = EngineView(Nobody())
    for ask_about in (view.container, view.volume, view.image):
        with pytest.raises(EngineUnreachable, match="names of more than"):
            ask_about("é" * 301)


def test_a_certificate_without_a_name_is_not_the_engines_own_socket():
    document = {**call(), "UserAuthNMethod": "TLS"}
    requests = [
        wire.decode_authorization(json.dumps({**document, **more}).encode())
        for more in ({}, {"User": ""}, {"User": "alice"}, {"User": "local"}, {"UserAuthNMethod": ""})
    ]
    callers = [caller(request.user, request.user_method) for request in requests]
    assert callers == ["CN=", "CN=", "alice", "CN=local", "local"]


def test_a_gpu_without_limit_is_denied(docker, scheduler):
    answer = ask(docker, call(gpu()))
    assert answer["Allow"] is False
    assert answer["Msg"].startswith("gpu-needs-limit: ")
    assert scheduler.asked == []


def test_a_volume_that_the_scheduler_knows_is_a_limit(docker, scheduler):
    scheduler.volumes["mine"] = {}
    assert ask(docker, call(gpu(Binds=["mine:/run/convgpu"]))) == ALLOWED
    assert ask(docker, call(gpu(Binds=["other:/run/convgpu"])))["Allow"] is False
    assert {asked["name"] for asked in scheduler.asked} == {"mine", "other"}


def test_without_the_scheduler_a_named_volume_is_denied(docker, scheduler):
    scheduler.failure = SchedulerUnavailable("the scheduler does not answer")
    assert ask(docker, call(gpu(Binds=["mine:/run/convgpu"]))) == {
        "Allow": False,
        "Msg": "scheduler-unavailable: the scheduler does not answer; nobody can tell what the volume limits.",
    }


def test_a_bug_denies_and_is_logged(docker, scheduler, caplog):
    scheduler.failure = RuntimeError("bug")
    answer = ask(docker, call(gpu(Binds=["mine:/run/convgpu"])))
    assert (answer["Allow"], answer["Msg"].partition(":")[0]) == (False, "not-understood")
    assert "RuntimeError: bug" in caplog.text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", f"request-malformed: {wire.EMPTY_BODY}"),
        (b"{}", "request-malformed: the request names no RequestMethod"),
        (b'{"RequestMethod": "GET"}', "request-malformed: the request names no RequestUri"),
        (
            b'{"RequestMethod": "POST", "RequestUri": "/containers/create", "RequestBody": "?"}',
            "request-malformed: RequestBody is not base64: Only base64 data is allowed",
        ),
        (
            b'{"RequestMethod": "POST", "RequestUri": "/containers/create", "RequestBody": 7}',
            "request-malformed: RequestBody must be text",
        ),
    ],
)
def test_a_malformed_question_is_denied(docker, raw, text):
    assert ask(docker, raw=raw) == {"Allow": False, "Msg": text}


def test_a_question_that_is_too_long_is_denied(docker):
    answer = ask(docker, raw=b" " * (MAX_BODY + 1))
    assert answer == {"Allow": False, "Msg": f"request-too-large: more than {MAX_BODY} bytes; make it smaller."}


def test_a_body_that_the_engine_keeps_back_is_denied(docker):
    answer = ask(docker, call())
    assert (answer["Allow"], answer["Msg"].partition(":")[0]) == (False, "body-withheld")


@pytest.mark.parametrize("raw", [b"", b"{}", b"no JSON"])
def test_what_has_happened_is_not_hidden(docker, raw):
    assert ask(docker, raw=raw, path=wire.AUTHORIZE_RESPONSE) == ALLOWED


@pytest.mark.parametrize(
    ("rules", "permitted"),
    [
        ('mode = "off"', ["start"]),
        ('mode = "audit"', ["start"]),
        ('administrators = ["local"]', ["start"]),
        ("", []),
    ],
)
def test_what_passes_although_it_would_be_refused_is_noted(rules, permitted):
    """Then the audit does not end it, whatever it uses of a GPU."""
    noted = []
    judge = SimpleNamespace(
        permit=lambda call: noted.append(call.kind.name.lower()), judge=lambda *_: Refusal("x", "no").verdict()
    )
    answer = Authorizer(judge, lambda: parse_rules(rules)).answer(
        json.dumps(call({}, uri="/containers/c/start")).encode()
    )
    assert (noted, answer == PASS) == (permitted, bool(permitted))


TOO_LONG = json.dumps(call({}, uri=f"/containers/{'a' * 9000}/start")).encode()


@pytest.mark.parametrize(
    "rules", ["", 'mode = "strict"', 'mode = "off"', 'mode = "audit"', 'administrators = ["local"]']
)
def test_an_address_that_is_too_long_is_not_read(rules, caplog):
    """Neither before the call nor after it; rules that do not hold refuse nothing."""
    authorizer = Authorizer(SimpleNamespace(), lambda: parse_rules(rules))
    assert pass_at_once(wire.AUTHORIZE_REQUEST, TOO_LONG, strict=authorizer.is_strict) is None
    answer = json.loads(authorizer.answer(TOO_LONG))
    holds = rules in {"", 'mode = "strict"'}
    assert (answer["Allow"], answer["Msg"].partition(":")[0]) == (not holds, "address-too-long" if holds else "")
    assert ("would be denied" in caplog.text) is ("audit" in rules)
    assert max(map(len, caplog.messages), default=0) < 1000
    caplog.clear()
    assert (authorizer.note(TOO_LONG), caplog.messages) == (PASS, [])
