"""The description of the administration against the service that runs: gunicorn, with a real scheduler behind it."""

import json
from http import HTTPStatus

import pytest
import requests
import requests_unixsocket
from daemon import GIB
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_world import house as open_house
from rounds import rounds

from convgpu.client.scheduler import Scheduler
from convgpu.plugin.admin_api.openapi import OPERATIONS, describe, routes
from convgpu.plugin.server.app import create_app
from convgpu.plugin.settings import Settings

BASE = "http://plugin"


class OneSocket(requests_unixsocket.UnixAdapter):
    """Sends what is for BASE to a UNIX socket: schemathesis knows no URLs of such."""

    def __init__(self, path):
        super().__init__()
        self._base = f"http+unix://{str(path).replace('/', '%2F')}"

    def send(self, request, *arguments, **named):
        request.url = self._base + request.url.removeprefix(BASE)
        return super().send(request, *arguments, **named)


class Nobody(Scheduler):
    def ask_json(self, request):
        raise AssertionError(request)


@pytest.fixture(scope="module")
def app():
    return create_app(Nobody(), Settings())


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("house")
    with open_house(directory) as house, requests.Session() as session:
        session.mount(BASE, OneSocket(house.settings.socket))
        house.holder("holder", 12 * GIB)
        house.container("job-1", 8 * GIB)
        house.process("job-1").allocate(6 * GIB)
        yield session


def test_each_route_is_described(app):
    assert set(OPERATIONS) == set(routes(app))


def test_the_description_is_served(service, app):
    assert service.get(f"{BASE}/v1/openapi.json").json() == json.loads(json.dumps(describe(app)))


@pytest.mark.parametrize("route", OPERATIONS, ids=" ".join)
def test_the_service_is_as_described(service, app, route):
    # Each worker of pytest-xdist imports this file, and one of them needs these: 0.7 s of CPU.
    import schemathesis  # noqa: PLC0415
    from schemathesis import GenerationMode  # noqa: PLC0415
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415
    from schemathesis.specs.openapi import checks  # noqa: PLC0415

    method, path = route
    operation = schemathesis.openapi.from_dict(describe(app))[path][method]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

    # Only the scheduler knows which limits and policies there can be: of what is described it may refuse some.
    known = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
        checks.unsupported_method,
        checks.allow_header_conformance,
    ]
    if method == "GET":
        known.append(checks.positive_data_acceptance)

    # The same cases each time: what a service that runs does with chance ones is for `schemathesis run`.
    @settings(max_examples=rounds(40, few=12), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def check(case):
        answer = case.call(base_url=BASE, session=service)
        # Too long for gunicorn, before anything of ours sees it.
        if answer.status_code != HTTPStatus.REQUEST_URI_TOO_LONG:
            case.validate_response(answer, checks=known)

    check()
