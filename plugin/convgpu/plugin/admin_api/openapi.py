"""The description of the HTTP administration at `/v1/openapi.json` (OpenAPI 3.1).

Its types are those of `convgpu.protocol`, and its routes those of the application: only descriptions stand here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Final

import msgspec
from flask import Blueprint, Flask, Response, current_app, jsonify

from convgpu.plugin.docker_api.authorization_status import Authorization
from convgpu.protocol import records
from convgpu.protocol.inspection import records as inspection
from convgpu.protocol.inspection import usage

_REFERENCE: Final = "#/components/schemas/{name}"
_NAME: Final[Mapping[str, object]] = {
    "type": "string",
    "pattern": "^[a-zA-Z0-9][a-zA-Z0-9_.-]*$",
    "maxLength": 255,
    "example": "job-1",
}
_SEQUENCE: Final[Mapping[str, object]] = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}


class ProblemText(msgspec.Struct):
    """Why: `code` for programs, `text` one line for people that names the next step."""

    code: str
    text: str


class Problem(msgspec.Struct):
    """The answer to whatever could not be done."""

    error: ProblemText


class NewLimits(msgspec.Struct):
    """What is to change, each as the option of a volume that has its name; one at least. `wait` may be `forever`."""

    memory: Annotated[str, msgspec.Meta(examples=["2g", "GPU-uuid:2g,GPU-uuid:4g"])] | msgspec.UnsetType = msgspec.UNSET
    wait: Annotated[str, msgspec.Meta(examples=["5m", "forever"])] | msgspec.UnsetType = msgspec.UNSET
    priority: Annotated[str, msgspec.Meta(examples=["10"])] | msgspec.UnsetType = msgspec.UNSET


class Drained(msgspec.Struct):
    """Whether a device gets no new grants."""

    drained: bool


class NewPolicy(msgspec.Struct):
    """The name of a policy."""

    policy: str


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of a route.

    Attributes:
        summary: in one line.
        answer: type of the answer with status 200.
        query: schema of each parameter behind the question mark.
        path: schema of each parameter in the path.
        body: type of the request's body, None for a request without.
        errors: other statuses, beside those that every route has.
    """

    summary: str
    answer: type[msgspec.Struct]
    query: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    path: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    body: type[msgspec.Struct] | None = None
    errors: tuple[int, ...] = ()


_PAST: Final[Mapping[str, Mapping[str, object]]] = {
    "container": _NAME,
    "kinds": {"type": "array", "items": {"type": "string"}},
    "after": {"type": "number"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100_000},
}
_DEVICE: Final[Mapping[str, Mapping[str, object]]] = {
    "device": {"type": "string", "description": "UUID or index", "example": "0"}
}

OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/devices"): Operation("The GPUs, and the policy", records.Devices),
    ("GET", "/v1/containers"): Operation("All containers with a ConvGPU volume, oldest first", records.Containers),
    ("GET", "/v1/containers/{name}"): Operation(
        "One container, by the name of its volume", records.Container, path={"name": _NAME}, errors=(400, 404)
    ),
    ("GET", "/v1/containers/{name}/allocations"): Operation(
        "The live allocations of a container, asked of its processes",
        inspection.Allocations,
        query={"most": {"type": "integer", "minimum": 1, "maximum": 65_536}},
        path={"name": _NAME},
        errors=(400, 404),
    ),
    ("GET", "/v1/containers/{name}/trace"): Operation(
        "The calls of a container that take memory; they are reported until nobody asks for three seconds",
        inspection.Trace,
        query={"since": _SEQUENCE},
        path={"name": _NAME},
        errors=(400, 404),
    ),
    ("GET", "/v1/events"): Operation(
        "The newest events from a number on, and totals", records.Events, query={"since": _SEQUENCE}, errors=(400,)
    ),
    ("GET", "/v1/history"): Operation("The kept history, newest last", records.History, query=_PAST, errors=(400,)),
    ("GET", "/v1/usage"): Operation(
        "The usage of the GPUs over time, in steps of a second, 12 s or 144 s",
        usage.Usage,
        query={"step": {"enum": list(usage.STEPS)}, "after": _SEQUENCE},
        errors=(400,),
    ),
    ("GET", "/v1/policy"): Operation("The policy, and those that can be chosen", records.PolicyChoice),
    ("POST", "/v1/policy"): Operation("Choose the policy", records.PolicyChoice, body=NewPolicy, errors=(400, 413)),
    ("GET", "/v1/placement"): Operation("The policy that chooses GPUs, and the others", records.PolicyChoice),
    ("POST", "/v1/placement"): Operation(
        "Choose the policy that chooses GPUs", records.PolicyChoice, body=NewPolicy, errors=(400, 413)
    ),
    ("POST", "/v1/containers/{name}/limits"): Operation(
        "Change the limits of a container, its longest pause, its priority",
        records.LimitChanges,
        path={"name": _NAME},
        body=NewLimits,
        errors=(400, 404, 409, 413),
    ),
    ("POST", "/v1/containers/{name}/suspend"): Operation(
        "Stop a container and move its memory to the host; `deep`: its contexts leave as well",
        records.Done,
        query={"deep": {"type": "boolean"}},
        path={"name": _NAME},
        errors=(400, 404),
    ),
    ("POST", "/v1/containers/{name}/resume"): Operation(
        "Let a suspended container run again", records.Done, path={"name": _NAME}, errors=(400, 404)
    ),
    ("POST", "/v1/devices/{device}/drain"): Operation(
        "Give no new grants on a device, or give them again",
        records.Done,
        path=_DEVICE,
        body=Drained,
        errors=(400, 404, 413),
    ),
    ("GET", "/v1/authorization"): Operation(
        "The rules of the authorization; `quotas=false`: without what quotas are used for",
        Authorization,
        query={"quotas": {"type": "boolean"}},
        errors=(400,),
    ),
}

_PROBLEMS: Final = {
    400: "the request cannot be",
    404: "there is none of that name",
    409: "it is in use",
    413: "the request is too long",
    503: "the scheduler does not answer, or could not do it",
}


def create_blueprint() -> Blueprint:
    """Return the route of the description."""
    blueprint = Blueprint("openapi", __name__, url_prefix="/v1")

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return jsonify(describe(current_app))

    return blueprint


def routes(app: Flask) -> Iterator[tuple[str, str]]:
    """Return method and path of each route of the administration, but that of the description itself."""
    for rule in app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        if path.startswith("/v1/") and path != "/v1/openapi.json":
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield method, path


def describe(app: Flask) -> dict[str, object]:
    """Return the description of the routes that an application has."""
    paths: dict[str, dict[str, object]] = {}
    used: list[type[msgspec.Struct]] = [Problem]
    for method, path in routes(app):
        operation = OPERATIONS.get((method, path))
        if operation is not None:
            paths.setdefault(path, {})[method.lower()] = _operation(operation)
            used += [operation.answer, *([operation.body] if operation.body else [])]
    _, schemas = msgspec.json.schema_components(used, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ConvGPU",
            "version": version("convgpu"),
            "description": "Administration on the plugin's socket. Sizes are bytes, times Unix seconds.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(operation: Operation) -> dict[str, object]:
    parameters = [_parameter("path", name, schema) for name, schema in operation.path.items()]
    parameters += [_parameter("query", name, schema) for name, schema in operation.query.items()]
    problems = {
        str(status): {"description": _PROBLEMS[status], **_json(Problem)} for status in (*operation.errors, 503)
    }
    described: dict[str, object] = {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {"200": {"description": "done", **_json(operation.answer)}, **problems},
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_json(operation.body)}
    return described


def _parameter(place: str, name: str, schema: Mapping[str, object]) -> dict[str, object]:
    return {"in": place, "name": name, "required": place == "path", "schema": dict(schema)}


def _json(model: type[msgspec.Struct]) -> dict[str, object]:
    return {"content": {"application/json": {"schema": {"$ref": _REFERENCE.format(name=model.__name__)}}}}
