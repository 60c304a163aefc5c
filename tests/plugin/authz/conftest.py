"""An Engine, a host and rules of ours for the judge; what it asks is answered from dictionaries."""

import json

import pytest

from convgpu.plugin.authz.host import HostFacts
from convgpu.plugin.authz.judge import Judge
from convgpu.plugin.authz.limits import Limits
from convgpu.plugin.authz.owners import Owners
from convgpu.plugin.authz.paths import normal
from convgpu.plugin.authz.routes import route
from convgpu.plugin.authz.site import Rules
from convgpu.plugin.authz.verdict import NOT_JUDGED
from convgpu.plugin.engine import EngineUnavailable


class FakeView:
    """What `EngineView` would tell; `asked` are its questions."""

    def __init__(self):
        self.containers, self.volumes, self.images = {}, {}, {}
        self.runtime = "runc"
        self.down = False
        self.asked = []

    def _answer(self, kind, name, found):
        self.asked.append((kind, name))
        if self.down:
            raise EngineUnavailable("no Engine answers")
        return found.get(name)

    def container(self, name):
        return self._answer("container", name, self.containers)

    def volume(self, name):
        return self._answer("volume", name, self.volumes)

    def image(self, name):
        return self._answer("image", name, self.images)

    def facts(self):
        self._answer("facts", "", {})
        return HostFacts("/var/lib/docker", self.runtime)


class FakeNodes:
    """A host whose links and nodes are in dictionaries."""

    def __init__(self):
        self.links = {}

    def resolve(self, path):
        return self.links.get(normal(path), normal(path))

    def is_gpu(self, path):
        path = self.resolve(path)
        return path.startswith("/dev/nvidia") or path in {"/", "/dev"}

    def is_gpu_major(self, major):
        return major == 195


class World:
    """Everything that a judge looks at."""

    def __init__(self, scheduler, directory):
        self.view, self.nodes, self.scheduler = FakeView(), FakeNodes(), scheduler
        self.now = 1000.0
        self.rules = Rules()
        self.owners = Owners(directory / "owners.json", lambda: self.now)
        self.name = "convgpu"

    def judge(self, body, uri="/v1.41/containers/create", method="POST", user="local"):
        """Return the verdict about a call; a body that is not bytes goes as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        call = route(method, uri)
        if call is None:
            return NOT_JUDGED
        judge = Judge(self.name, self.view, self.nodes, Limits(self.scheduler, self.owners))
        return judge.judge(call, raw, user, self.rules)

    def start(self, inspected, query="", version="v1.41", user="local"):
        """Return the verdict about the start of a container of which the Engine says `inspected`."""
        self.view.containers["c"] = inspected
        return self.judge(b"", f"/{version}/containers/c/start{query}", user=user)


@pytest.fixture
def world(scheduler, tmp_path):
    return World(scheduler, tmp_path)
