"""The status of authorization over HTTP."""

from types import SimpleNamespace

import pytest
from flask import Flask

from convgpu.authz.site.rules_file import RulesFile
from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.plugin.docker_api import authorization_status
from convgpu.plugin.engine.client import EngineUnavailable


class AbsentScheduler:
    """Quotas whose scheduler does not answer."""

    def __init__(self):
        self.asked = 0

    def read(self, _rules):
        self.asked += 1
        raise SchedulerUnavailable("the scheduler does not answer")


@pytest.fixture
def quotas():
    return AbsentScheduler()


class AbsentEngine:
    def __init__(self, _socket, _timeout):
        pass

    def ask(self, _question):
        raise EngineUnavailable("the Engine does not answer")


@pytest.fixture
def client(tmp_path, monkeypatch, quotas):
    monkeypatch.setattr(authorization_status, "Engine", AbsentEngine)
    app, rules = Flask(__name__), RulesFile(tmp_path / "rules.toml")
    settings = SimpleNamespace(engine=tmp_path / "docker.sock")
    app.register_blueprint(authorization_status.create_status(settings, rules, quotas, lambda: 7))
    return app.test_client()


def test_it_says_that_the_use_of_quotas_is_not_known(client, quotas):
    answer = client.get("/v1/authorization").json
    assert (answer["quotas"], answer["quotas_error"]) == ([], "the scheduler does not answer")
    assert (answer["judged"], quotas.asked) == (7, 1)


def test_who_does_not_want_the_use_of_quotas_waits_for_no_scheduler(client, quotas):
    answer = client.get("/v1/authorization?quotas=false").json
    assert (answer["judged"], quotas.asked) == (7, 0)
    assert "quotas" not in answer


def test_a_question_that_is_none_gets_a_clear_error(client, quotas):
    answer = client.get("/v1/authorization?quotas=1")
    assert (answer.status_code, quotas.asked) == (400, 0)
    assert answer.json == {"error": {"code": "malformed", "text": "quotas=1: give true or false"}}
