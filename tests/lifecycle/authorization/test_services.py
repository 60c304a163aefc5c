"""Services that would get a GPU without a limit, or the host: each works without authorization, none with it."""

import base64
import json

import bypass_services
import bypasses
import pytest
from raw_engine import Call, RawEngine

pytestmark = pytest.mark.engine

PLAIN = {"Image": bypasses.IMAGE, "Cmd": ["true"]}
NAMES = [way.name for way, _ in bypass_services.services({"secret": "", "config": ""})]


def service_id(label):
    return label["Labels"].get("com.docker.swarm.service.id")


def tasks(raw):
    """Return the containers of services, by the service."""
    return {service_id(row): row["Id"] for row in raw.get("/containers/json?all=1") if service_id(row)}


def settled(raw):
    """Return the services with a task, in any state."""
    ends = {"running", "complete", "failed", "rejected"}
    return {row["ServiceID"] for row in raw.get("/tasks") if row["Status"]["State"] in ends}


def remove_all(engine, raw):
    for row in raw.get("/services"):
        raw.send(Call("DELETE", f"/services/{row['ID']}"))
    engine.wait_for("no service is left", lambda: raw.get("/services") == [])
    for container in tasks(raw).values():
        raw.remove(container)


@pytest.fixture(scope="module")
def raw(swarm, runtimes):
    """A swarm without authorization whose default runtime reads variables, with the objects that attempts need."""
    swarm.configure({"authorization-plugins": [], "runtimes": runtimes, "default-runtime": "nvidia"})
    raw = RawEngine(f"{swarm.directory}/docker.sock")
    source = raw.post("/containers/create", PLAIN).json["Id"]
    raw.post(f"/commit?container={source}&repo={bypasses.CUDA_IMAGE}&changes=ENV+{bypasses.VISIBLE}")
    raw.remove(source)
    raw.post("/volumes/create", {"Name": bypasses.DISGUISED, "DriverOpts": bypasses.DISGUISES["bind"]})
    yield raw
    swarm.configure({"authorization-plugins": []})
    remove_all(swarm, raw)
    swarm("volume", "prune", "-f")
    for volume in swarm("volume", "ls", "-q").split():
        swarm("volume", "rm", volume)
    swarm("image", "rm", "-f", bypasses.CUDA_IMAGE)
    swarm.configure({"default-runtime": "runc", "runtimes": {}})


@pytest.fixture(scope="module")
def files(raw):
    data = base64.b64encode(b"/x.so").decode()
    kinds = ("secret", "config")
    return {kind: raw.post(f"/{kind}s/create", {"Name": kind, "Data": data}).json["ID"] for kind in kinds}


@pytest.fixture(scope="module")
def attempts(files):
    return {way.name: (way, body) for way, body in bypass_services.services(files)}


@pytest.fixture(scope="module")
def unguarded(swarm, raw, attempts):
    """Names of the attempts without authorization whose task got the request."""
    created = {name: raw.post("/services/create", body) for name, (_, body) in attempts.items()}
    services = {name: answer.json["ID"] for name, answer in created.items() if answer.status == 201}
    swarm.wait_for("each service had its task", lambda: set(services.values()) <= settled(raw))
    containers = tasks(raw)
    seen = {name: raw.get(f"/containers/{containers[one]}/json") for name, one in services.items() if one in containers}
    remove_all(swarm, raw)
    return {name for name, container in seen.items() if attempts[name][0].look(container)}


@pytest.fixture(scope="module")
def base(raw, unguarded):  # noqa: ARG001
    """A harmless service, whose previous specification mounted the host before authorization was on."""
    before = bypass_services.specification("base", {"Mounts": [bypass_services.bind("/etc")]})
    raw.post("/services/create", before)
    after = bypass_services.specification("base", {})
    assert update(raw, "base", after).status == 200
    return after


@pytest.fixture(scope="module")
def guarded(swarm, plugin, raw, base):  # noqa: ARG001
    swarm.configure({"authorization-plugins": [plugin]})
    return raw


def update(raw, name, body, query=""):
    """Update a service; repeated when Swarm changes the service at the same time."""
    while True:
        version = raw.get(f"/services/{name}")["Version"]["Index"]
        answer = raw.post(f"/services/{name}/update?version={version}{query}", {**body, "Name": name})
        if b"out of sequence" not in answer.raw:
            return answer


def test_each_attempt_works_without_the_plugin(unguarded):
    assert set(NAMES) - unguarded == set()


def specs(raw: RawEngine) -> list[object]:
    """What all services are; Swarm gives them new versions and times by itself."""
    return [(each["ID"], each["Spec"], each.get("PreviousSpec")) for each in raw.get("/services")]


@pytest.mark.parametrize("name", NAMES)
def test_no_service_gets_through(guarded, base, attempts, name):
    body = attempts[name][1]
    before = specs(guarded)
    for call in (
        Call("POST", "/v1.41/services/create", body),
        Call("POST", "/services%2Fcreate", json.dumps(body).replace('"TaskTemplate"', '"tasktemplate"').encode()),
        Call(
            "POST",
            "http://docker/v1.41/services/create",
            json.dumps(body).replace("ContainerSpec", "containerSpec").encode(),
        ),
    ):
        assert guarded.send(call).denied
    # Under the name of the service that is there; one attempt lives by its own name.
    if "name" not in name:
        assert update(guarded, "base", body).denied
    assert specs(guarded) == before
    assert base["TaskTemplate"]["ContainerSpec"].get("Mounts") is None


def _specifications(engine, name):
    """What a service is and was; how far its last update has come changes by itself."""
    service = engine.get(f"/services/{name}")
    return service["Spec"], service.get("PreviousSpec")


def test_a_rollback_to_a_refused_specification_is_refused(swarm, guarded, base):
    before = _specifications(guarded, "base")
    for query in ("&rollback=previous", "&x=;rollback=previous", "&roll%62ack=previous"):
        answer = update(guarded, "base", base, query)
        assert answer.denied or (answer.status == 400 and ";" in query), answer
    assert _specifications(guarded, "base") == before
    assert update(guarded, "base", {**base, "Labels": {"x": "1"}}).status == 200
    assert update(guarded, "base", base, "&rollback=previous").status == 200
    swarm.wait_for("it is rolled back", lambda: guarded.get("/services/base")["Spec"]["Labels"] == base["Labels"])


def test_services_without_gpu_run(swarm, guarded, files):
    created = {body["Name"]: guarded.post("/v1.41/services/create", body) for body in bypass_services.innocents(files)}
    refused = {name: answer.raw for name, answer in created.items() if answer.status != 201}
    assert refused == {}
    services = {answer.json["ID"] for answer in created.values()}
    swarm.wait_for("each has its task", lambda: services <= tasks(guarded).keys())
    for name in created:
        body = guarded.get(f"/services/{name}")["Spec"]
        assert update(guarded, name, {**body, "Labels": {"x": "1"}}).status == 200
