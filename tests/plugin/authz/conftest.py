"""Fakes of the judge's ports, which answer from dictionaries."""

import json
from pathlib import Path

import pytest
import strict_site
from engine_says import GPU, NEW_ENGINE, OURS, inspected

from convgpu.authz.facts.overdue_starts import Time
from convgpu.authz.facts.owners import Owners
from convgpu.authz.facts.permits import Permits
from convgpu.authz.facts.prepared_programs import PreparedPrograms
from convgpu.authz.judge import Judge
from convgpu.authz.ports import EngineHolds, EngineUnreachable, GpuPath, HostFacts, NoJobs, Ports, Way
from convgpu.authz.requests.routes import route
from convgpu.authz.site.rules import Rules, parse_rules
from convgpu.authz.verdict import NOT_JUDGED, Denied
from convgpu.client.scheduler import SchedulerRefused
from convgpu.protocol.records import Container, Device, Placement, Share
from convgpu.protocol.sizes import parse_size
from convgpu.runtime.paths import normal


class FakeEngine:
    """A fake of the Engine port; `asked` records the queries."""

    def __init__(self):
        self.containers, self.volumes, self.images, self.services = {}, {}, {}, {}
        self.programs = {}
        self.more = {}
        self.runtime, self.runtime_memory = "runc", None
        self.down = False
        self.held = set()  # containers about which it does not answer
        self.asked = []

    def _answer(self, kind, name, found):
        self.asked.append((kind, name))
        if self.down:
            raise EngineUnreachable("no Engine answers")
        return found.get(name)

    def container(self, name):
        return self._answer("container", name, self.containers)

    def container_within(self, name, seconds):
        """Find it by its id, too, as the Engine does."""
        found = self._answer("within", name, self.containers)
        if name in self.held:
            raise EngineHolds(f"container {name}", seconds)
        found = found or next((row for row in self.containers.values() if row["Id"] == name), None)
        return None if found is None else {"State": {"Status": "created"}, **found}

    def volume(self, name):
        return self._answer("volume", name, self.volumes)

    def image(self, name):
        return self._answer("image", name, self.images)

    def service(self, name):
        return self._answer("service", name, self.services)

    def facts(self):
        self._answer("facts", "", {})
        return HostFacts("/var/lib/docker", self.runtime, self.runtime_memory, **self.more)

    def id_of(self, name):
        return (self._answer("list", name, self.containers) or {}).get("Id")

    def prepared(self, name):
        return self._answer("prepared", name, self.programs)

    def states(self):
        self._answer("states", "", {})
        return {row["Id"]: row.get("State", {}).get("Status", "created") for row in self.containers.values()}


class FakeDevices:
    """A host whose links and nodes are in dictionaries."""

    def __init__(self):
        self.links, self.of_users, self.missing, self.large = {}, set(), set(), set()

    def resolve(self, path):
        return self.links.get(normal(path), normal(path))

    def way(self, path):
        ends = dict.fromkeys((normal(path), self.resolve(path)))
        return Way(self.resolve(path), tuple(dict.fromkeys(str(each) for end in ends for each in Path(end).parents)))

    def others_write(self, folder):
        return folder in self.of_users

    def is_missing(self, path):
        return path in self.missing

    def gpu_at(self, paths):
        return next((GpuPath(path, path not in self.large) for path in paths if self._is_gpu(path)), None)

    def _is_gpu(self, path):
        real = self.resolve(path)
        return path in self.large or real.startswith("/dev/nvidia") or real in {"/", "/dev"}

    def is_gpu_number(self, major, _minor=None):
        return major == 195


class FakeScheduler:
    """A fake of the scheduler port.

    `limits` by the volume's name, 0 for none yet; `running` holds names, and `unplaced` those whose GPU is not chosen.
    """

    def __init__(self):
        self.limits, self.running, self.since, self.unplaced = {}, set(), {}, set()
        self.drained = set()
        self.terms = {}  # more of a container, by its name
        self.left = ()
        self.asked = 0

    def find(self, volume):
        self.asked += 1
        return self._record(volume) if volume in self.limits else None

    def all(self):
        self.asked += 1
        return [self._record(volume) for volume in self.limits]

    def devices(self):
        fields = {"name": "", "total": 0, "capacity": 0, "granted": 0, "used": 0, "settling": 0}
        indices = {"GPU-1": 0, "GPU-2": 1}
        left = {"GPU-1": tuple(self.left)}
        return [
            Device(uuid=u, index=i, drained=u in self.drained, unlimited=left.get(u, ()), **fields)
            for u, i in indices.items()
        ]

    def set_limit(self, volume, memory):
        if memory == "bad":
            raise SchedulerRefused("invalid", "memory=bad: not a size")
        self.limits[volume] = parse_size(memory)

    def _record(self, volume):
        limit, since = self.limits[volume], self.since.get(volume)
        state = "running" if volume in self.running else "created" if since is None else "ended"
        where = {"devices": (Share(uuid="GPU-1", limit=limit, grant=0, usage=0),)}
        if volume in self.unplaced:
            where = {"placement": Placement(1, {"GPU-1": limit, "GPU-2": limit})}
        return Container(
            name=volume, mountpoint="/x", created=1.0, state=state, since=since, **where, **self.terms.get(volume, {})
        )


class Harness:
    """A judge with fakes of all its ports."""

    def __init__(self, directory):
        self.engine, self.devices, self.scheduler = FakeEngine(), FakeDevices(), FakeScheduler()
        self.now = 1000.0
        self.rules = Rules()
        self.jobs = NoJobs()
        self.notes = None
        self.programs = PreparedPrograms()
        self.permits = Permits(None, lambda: self.now)
        self.waited = 0.0
        self.directory = directory
        self.restart()
        self.name = "convgpu"

    def _judge(self):
        ports = Ports(self.engine, self.devices, self.scheduler, self.jobs)
        return Judge(self.name, ports, self.owners, self.notes, self.programs, self.permits)

    def restart(self):
        """Have another plugin read what this one noted."""
        seconds = Time(lambda: self.now + self.waited, self._wait)
        self.owners = Owners(self.directory / "owners.json", lambda: self.now, seconds)

    def _wait(self, seconds):
        self.waited += seconds

    def note(self, uri, answer, user="local"):
        """Have the judge note what a call prepared."""
        call = route("POST", uri, strict=True)
        self._judge().note(call, json.dumps(answer).encode(), user, self.rules)

    def permit(self, uri):
        """Have the judge note a call that passes whatever the rules say."""
        self._judge().permit(route("POST", uri))

    def judge(self, body, uri="/v1.41/containers/create", method="POST", user="local", headers=None):
        """Return the verdict about a call; a body that is not bytes goes as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            call = route(method, uri, strict=self.rules.strict_list is not None)
        except Denied as denied:
            return denied.refusal.verdict()
        if call is None:
            return NOT_JUDGED
        return self._judge().judge(call, raw, user, self.rules, headers)

    def start(self, inspected, query="", version="v1.41", user="local", *, is_answered=True, action="start"):
        """Return the verdict about the start of a container that the Engine inspects as `inspected`."""
        self.engine.containers["c"] = inspected
        address = f"/{version}/containers/c/{action}{query}"
        verdict = self.judge(b"", address, user=user)
        if verdict.allow and is_answered:
            self.note(address, {}, user)
        return verdict


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path)


@pytest.fixture
def start(harness):
    """Start a container with the volume `name`, whose limit is 2 GiB, as the fake scheduler says."""

    def started(name, user="bob", **config):
        harness.scheduler.limits.setdefault(name, 2 << 30)
        return harness.start(inspected(GPU, mounts=[{**OURS, "Name": name}], **config), user=user)

    return started


@pytest.fixture
def strict(harness):
    """A judge under the rules of the sample site: container c, one that has more than the list, and a program in c."""
    harness.rules = parse_rules(strict_site.RULES)
    harness.engine.runtime = "convgpu"
    harness.engine.more = dict(NEW_ENGINE)
    harness.engine.containers["c"] = inspected({"Runtime": "convgpu"}, mounts=())
    harness.engine.containers["more"] = inspected({"Runtime": "convgpu", "CapAdd": ["SYS_PTRACE"]}, mounts=())
    harness.engine.programs["e"] = {"ContainerID": "c", "ProcessConfig": {"privileged": False}}
    return harness
