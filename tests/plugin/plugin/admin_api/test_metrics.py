"""What Prometheus is told, from a scheduler that says what it is told."""

import json
import re

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from convgpu.client.scheduler import Scheduler, SchedulerUnavailable
from convgpu.plugin.admin_api.metrics import MAX_CONTAINERS, SchedulerCollector
from convgpu.plugin.docker_api import wire
from convgpu.plugin.server.app import create_app
from convgpu.plugin.settings import Settings

A, B = "GPU-a", "GPU-b"


def device(uuid, **more):
    sizes = {"total": 100, "capacity": 90, "granted": 50, "used": 40, "settling": 3}
    return {"uuid": uuid, "index": 0, "name": 'Card "1"\n', **sizes, **more}


def listed(row):
    """Return a container as the scheduler lists it: with the devices on which it holds or waits."""
    waited_for = {wait["uuid"] for wait in row["waiting"]}
    return {**row, "devices": [share for share in row["devices"] if share["grant"] or share["uuid"] in waited_for]}


def container(name, state="running", grant=5, **more):
    shares = [{"uuid": A, "limit": 9, "grant": grant, "usage": 4}, {"uuid": B, "limit": 8, "grant": 0, "usage": 0}]
    known = {"name": name, "mountpoint": "/", "created": 1.0, "state": state, "devices": shares}
    return {**known, "sessions": [], "waiting": [], **more}


def wait(uuid, since, reason="memory"):
    return {"uuid": uuid, "size": 7, "call": "c", "pid": 1, "since": since, "missing": 7, "reason": reason}


class ToldScheduler(Scheduler):
    def __init__(self):
        self.devices = [device(A), device(B, drained=True, health="XID 79", external=6)]
        self.containers, self.others = [], []
        self.totals = {"events": {"paused": 2, "accepted": 5}, "waits": [1, 0, 0, 0, 0, 0, 0, 0, 0, 2], "waited": 9.5}
        self.failure = None

    def ask_json(self, request):
        if self.failure:
            raise self.failure
        answers = {
            "devices": {"devices": self.devices, "policy": "fifo"},
            "active-containers": {"containers": [listed(row) for row in self.containers], "others": self.others},
            "events": {"events": [], "next": 1, "totals": self.totals},
        }
        return json.dumps(answers[request.operation]).encode()


@pytest.fixture
def told():
    return ToldScheduler()


@pytest.fixture
def samples(told):
    def read():
        collector = SchedulerCollector(told, lambda: 1000.0)
        found = {}
        for family in collector.collect():
            for sample in family.samples:
                key = (sample.name.removeprefix("convgpu_"), *sorted(sample.labels.items()))
                assert key not in found
                found[key] = sample.value
        return found

    return read


def test_devices(samples):
    said = samples()
    on = (("device", B),)
    figures = {name: said[name, *on] for name in ("device_drained", "device_healthy", "device_external_bytes")}
    assert figures == {"device_drained": 1, "device_healthy": 0, "device_external_bytes": 6}
    named = ("memory", "capacity", "granted", "used", "settling", "external")
    assert [said[f"device_{name}_bytes", ("device", A)] for name in named] == [100, 90, 50, 40, 3, 0]
    assert said["device_info", ("device", A), ("index", "0"), ("name", 'Card "1"\n')] == 1
    assert said["policy_info", ("policy", "fifo")] == 1


def test_memory_that_leaves(samples, told):
    moves = {"moved_out": 30, "moved_in": 20, "rate_out": 5.5, "rate_in": 4.5, "drain": 0.25}
    told.devices = [device(A, out=12, pool=40, promised=130, moves=moves)]
    elastic = container("v", residency="stopped")
    elastic["devices"][0] |= {"out": 3, "fixed": 1}
    told.containers = [elastic, container("rigid")]
    said = samples()
    on = ("device", A)
    assert [said[f"device_{name}_bytes", on] for name in ("out", "pool", "promised")] == [12, 40, 130]
    ways = {"out": (30, 5.5), "in": (20, 4.5)}
    for way, (moved, rate) in ways.items():
        assert said["device_moved_bytes_total", on, ("direction", way)] == moved
        assert said["device_move_bytes_per_second", on, ("direction", way)] == rate
    assert said["device_drain_seconds", on] == 0.25
    assert said["elastic_containers", ("residency", "stopped")] == 1
    of = {key: value for key, value in said.items() if key[0] in {"container_out_bytes", "container_fixed_bytes"}}
    mine = (("container", "v"), on)
    assert of == {("container_out_bytes", *mine): 3, ("container_fixed_bytes", *mine): 1}


def test_the_queue(samples, told):
    told.containers = [
        container("v", "waiting", waiting=[wait(A, 990), wait(A, 400, "turn"), wait(B, 1234, "of tomorrow")])
    ]
    said = samples()
    reasons = {key[2][1]: value for key, value in said.items() if key[:2] == ("waiting_allocations", ("device", A))}
    nothing = {"card": 0, "gang": 0, "safety": 0, "drained": 0, "recovering": 0, "other": 0}
    assert reasons == {"memory": 1, "turn": 1, **nothing}
    assert said["waiting_allocations", ("device", B), ("reason", "other")] == 1
    assert said["waiting_bytes", ("device", A)] == 14
    # A clock that was set back makes no age negative.
    assert (said["oldest_wait_seconds", ("device", A)], said["oldest_wait_seconds", ("device", B)]) == (600, 0)


def test_only_containers_that_run_or_wait_have_series_of_their_own(samples, told):
    told.containers = [
        container("v", engine={"id": "i", "name": "träin\n", "image": "x" * 500}),
        container("w", "waiting", grant=0, waiting=[wait(B, 1)]),
    ]
    told.others = [
        {"state": "created", "residency": None, "count": 1},
        {"state": "ended", "residency": None, "count": 2},
        {"state": "running", "residency": "running", "count": 3},
    ]
    said = samples()
    states = {key[1][1]: value for key, value in said.items() if key[0] == "containers"}
    assert states == {"running": 4, "waiting": 1, "created": 1, "ended": 2}
    assert said["elastic_containers", ("residency", "running")] == 3
    limits = {key[1:]: value for key, value in said.items() if key[0] == "container_limit_bytes"}
    assert limits == {(("container", "v"), ("device", A)): 9, (("container", "w"), ("device", B)): 8}
    [info] = [key[1:] for key in said if key[0] == "container_info"]
    assert info == (("container", "v"), ("image", "x" * 128), ("name", "träin\n"))


def test_the_number_of_series_is_bounded(samples, told):
    told.containers = [container(f"v{i}", grant=i + 1) for i in range(MAX_CONTAINERS + 7)]
    said = samples()
    kept = {key[1][1] for key in said if key[0] == "container_used_bytes"}
    assert (len(kept), "v0" in kept, "v6" in kept, "v7" in kept) == (MAX_CONTAINERS, False, False, True)
    assert said["containers_left_out",] == 7


def test_totals(samples):
    said = samples()
    assert {key[1][1]: value for key, value in said.items() if key[0] == "events_total"} == {"paused": 2, "accepted": 5}
    assert said["wait_duration_seconds_bucket", ("le", "0.01")] == 1
    assert said["wait_duration_seconds_bucket", ("le", "+Inf")] == 3
    assert (said["wait_duration_seconds_count",], said["wait_duration_seconds_sum",]) == (3, 9.5)


def test_without_a_scheduler_there_is_still_an_answer(samples, told):
    told.failure = SchedulerUnavailable("gone")
    assert samples() == {("scheduler_up",): 0}
    told.failure = None
    told.devices = [{"uuid": 7}]
    assert samples() == {("scheduler_up",): 0}


def test_dockers_calls_are_timed(docker):
    docker.post(wire.LIST, data=b"{}")
    docker.post(wire.AUTHORIZE_RESPONSE, data=b"{}")
    docker.get("/v1/devices")
    answer = docker.get("/metrics")
    assert answer.status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    counts = {
        sample.labels["call"]: sample.value
        for sample in families["convgpu_docker_request_duration_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert {call: count for call, count in counts.items() if count} == {"List": 1, "AuthZRes": 1}
    assert docker.post("/metrics").status_code == 405


def test_openmetrics_for_those_who_ask_for_it(docker):
    answer = docker.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.mimetype == "application/openmetrics-text"
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("accepted", "read"),
    [
        ("text/plain; version=0.0.4", text_string_to_metric_families),
        ("application/openmetrics-text; version=1.0.0", openmetrics.text_string_to_metric_families),
    ],
)
def test_what_is_written_is_what_was_collected(told, accepted, read):
    told.containers = [container(f"v{i}", grant=1 << i) for i in range(0, 60, 20)]
    told.containers += [container('quote " back \\ line \n é', engine={"id": "i", "name": "n", "image": "m"})]
    text = create_app(told, Settings()).test_client().get("/metrics", headers={"Accept": accepted}).text
    written, collected = (
        {
            (sample.name, *sorted(sample.labels.items()), sample.value)
            for family in families
            for sample in family.samples
            if sample.name.startswith("convgpu_container_")
        }
        for families in (read(text), SchedulerCollector(told).collect())
    )
    assert len(collected) == 4 * 3 + 1  # three figures of each on one device, and what Docker calls the last
    assert written == collected


def test_the_files_for_grafana_and_prometheus_name_only_what_is_there(docker, told, tmp_path, request):  # noqa: ARG001
    root = request.config.rootpath
    told.containers = [container("v", engine={"id": "i", "name": "n", "image": "m"})]
    known = {family.name for family in SchedulerCollector(told).collect()}
    known |= {family.name for family in text_string_to_metric_families(docker.get("/metrics").text)}
    texts = [root / "deploy/grafana/convgpu.json", root / "deploy/prometheus/convgpu.rules.yml"]
    json.loads(texts[0].read_text())
    used = {name for path in texts for name in re.findall(r"\bconvgpu_\w+", path.read_text())}
    stripped = {re.sub(r"_(total|bucket|info)$", "", name) for name in used}
    assert stripped - known == set()
