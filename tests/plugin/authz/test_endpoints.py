"""Each endpoint of the Engine's API under strict rules is judged as the table says; what the table lacks is refused."""

import random
import re

import pytest
import strict_site
from engine_endpoints import ENDPOINTS
from engine_says import NEW_ENGINE, inspected

from convgpu.authz.requests import routes
from convgpu.authz.requests.routes import Kind, is_judged, route
from convgpu.authz.site.rules import parse_rules
from convgpu.authz.verdict import Denied

PLAIN = inspected({"Runtime": "convgpu"}, mounts=())
MORE = inspected({"Runtime": "convgpu", "CapAdd": ["SYS_PTRACE"]}, mounts=())
# What the body of a call says that reaches into a container, where it needs one.
BODIES = {
    "exec": {"Cmd": ["sh"]},
    "update": {"Memory": 1},
    "connect": {"Container": "c"},
    "disconnect": {"Container": "c"},
}
QUERIES = {"archive": "?path=/tmp", "commit": "?container=c", "build": "?t=x"}


@pytest.fixture
def strict(harness):
    harness.rules = parse_rules(strict_site.RULES.replace('calls = ["commit"]', ""))
    harness.engine.runtime = "convgpu"
    harness.engine.more = dict(NEW_ENGINE)
    harness.engine.containers["c"] = PLAIN
    return harness


def judge(strict, endpoint):
    method, path = endpoint.split(" ")
    path = re.sub(r"\{name\}$|\{[a-z]+(:\.[*+])?\}", "c", path)
    action = path.rpartition("/")[2]
    body = BODIES.get(action, b"") if ENDPOINTS[endpoint].startswith("container") else b""
    return strict.judge(body, f"/v1.41{path}{QUERIES.get(action, '')}", method)


def having(how):
    return [endpoint for endpoint, what in ENDPOINTS.items() if what.partition(" ")[0].strip(",") == how]


@pytest.mark.parametrize("endpoint", having("open"))
def test_what_is_open_to_everybody(strict, endpoint):
    strict.engine.containers["c"] = MORE
    assert judge(strict, endpoint).allow


@pytest.mark.parametrize("endpoint", having("container"))
def test_what_needs_a_container_that_the_caller_could_make(strict, endpoint):
    assert judge(strict, endpoint).allow
    strict.engine.containers["c"] = MORE
    assert judge(strict, endpoint).rule == "strict-capabilities"


@pytest.mark.parametrize("endpoint", having("body"))
def test_what_is_judged_by_its_body(strict, endpoint):
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"services"'))
    assert judge(strict, endpoint).rule == "body-withheld"


@pytest.mark.parametrize("endpoint", having("calls"))
def test_what_needs_an_entry(strict, endpoint):
    name = ENDPOINTS[endpoint].split(" ")[1].strip(",")
    verdict = judge(strict, endpoint)
    assert (verdict.rule, f"calls = ['{name}']" in verdict.message) == ("strict-calls", True), verdict
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', f'"{name}"'))
    assert judge(strict, endpoint).allow
    strict.engine.containers["c"] = MORE
    assert judge(strict, endpoint).rule == (
        "strict-capabilities" if "container" in ENDPOINTS[endpoint] else "nothing-to-judge"
    )


def test_what_no_entry_permits(strict):
    others = {how for how in ENDPOINTS.values() if how.startswith(("strict-", "plugin-", "swarm-"))}
    endpoints = {endpoint: how for endpoint, how in ENDPOINTS.items() if how in others}
    assert {endpoint: judge(strict, endpoint).rule for endpoint in endpoints} == endpoints
    assert others == {"strict-calls", "strict-exec", "plugin-management", "swarm-management"}


def _pattern(path):
    """Return the pattern that the Engine's router makes of a path."""
    parts = re.split(r"(\{[^}]+\})", path)
    patterns = [re.escape(part) if number % 2 == 0 else part.strip("{}").partition(":")[2] or "[^/]+"
                for number, part in enumerate(parts)]  # fmt: skip
    return re.compile("".join(patterns))


ROUTER = [(endpoint.split(" ")[0], _pattern(endpoint.split(" ")[1]), how) for endpoint, how in ENDPOINTS.items()]
PARTS = sorted({part for endpoint in ENDPOINTS for part in endpoint.split("/")[1:] if part and "{" not in part} | {"c"})
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE")


def test_nothing_is_open_that_the_table_does_not_say(strict):
    """With addresses drawn at random; a call that passes is one that the Engine's router finds open."""
    draw = random.Random(1)  # noqa: S311 - addresses
    strict.engine.containers["c"] = MORE
    wrong = []
    for _ in range(20_000):
        method = draw.choice(METHODS)
        path = "/" + "/".join(draw.choice(PARTS) for _ in range(draw.choice((1, 2, 2, 3, 3, 4))))
        hows = {how for its, pattern, how in ROUTER if its == method and pattern.fullmatch(path)}
        call = route(method, f"/v1.41{path}", strict=True)
        passes = call is None or (call.kind is Kind.OTHER and call.other.is_open)
        # Of several endpoints that fit, the Engine takes the first, and we the strictest.
        if (passes and hows != {"open"}) or (not passes and hows == {"open"}):
            wrong.append((method, path, hows, call))
    assert wrong == []


LONG = {
    "path": ("/containers/{}/start", 8192 - len("/containers//start")),
    "parameters": ("/build?{}", 128 << 10),
    "parameters of a call that its parameters judge": ("/commit?{}", 128 << 10),
}


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_an_address_has_a_bound(strict, name, is_strict):
    """Reading one of 1 MB took 1.3 s and 39 MiB; the arguments of a build fit."""
    strict.rules = strict.rules if is_strict else parse_rules("")
    uri, most = LONG[name]
    assert strict.judge(b"", uri.format("a" * most)).rule != "address-too-long"
    refused = is_strict or "commit" not in uri  # which guard does not judge
    assert strict.judge(b"", uri.format("a" * (most + 1))).rule == ("address-too-long" if refused else "not-judged")


@pytest.mark.parametrize("between", "&;")
def test_an_address_has_so_many_parameters_and_no_more(strict, between):
    few, many = (strict.judge(b"", f"/build?{between.join(['a'] * count)}").rule for count in (1024, 1025))
    assert (few, many) == ("strict-calls", "address-too-long")


def test_what_is_open_passes_by_its_path_however_long_its_parameters_are(monkeypatch):
    """So do the plugin's own questions to the Engine. Whether records ask for sizes stands in the parameters."""
    read = []
    monkeypatch.setattr(routes, "parse_qs", lambda query, **_: read.append(query) or {"size": ["1"]})
    for uri in ("/_ping", "/v1.41/volumes/v", "/containers/c/stats", "/images/json"):
        assert route("GET", f"{uri}?{'a;b&' * 250_000}", strict=True) is None
    assert read == []
    assert is_judged("GET", "/containers/json?size=1", strict=True)
    assert is_judged("POST", "/build?t=x", strict=True)
    assert read == ["size=1"]
    with pytest.raises(Denied):
        route("GET", f"/containers/json?{'a' * (129 << 10)}", strict=True)
