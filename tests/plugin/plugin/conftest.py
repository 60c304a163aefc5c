"""A scheduler of ours for the plugin's tests: in memory, and behind a real `admin.sock`."""

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convgpu.client.scheduler import Scheduler, SchedulerRefused
from convgpu.plugin.server.app import create_app
from convgpu.plugin.settings import Settings
from convgpu.protocol.messages import Admin, AdminReply, pack
from convgpu.protocol.requests import Request, write_request
from convgpu.protocol.stream import MessageStream

UUID = "GPU-00000000-0000-0000-0000-000000000001"


class FakeScheduler(Scheduler):
    """Keeps volumes as docs/protocol.md says, records what it was asked, and fails when told to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []
        self.volumes: dict[str, dict[str, str]] = {}
        self.mounts: dict[str, int] = {}
        self.injected: set[str] = set()
        self.failure: Exception | None = None
        self.answers: dict[str, dict[str, object]] = {}

    def request(self, op: str, **fields: object) -> dict[str, object]:
        fields.pop("until", None)  # a time, which is another one in each run
        self.asked.append({"op": op, **fields})
        if self.failure is not None:
            raise self.failure
        return self.answers[op] if op in self.answers else getattr(self, f"_{op.replace('-', '_')}")(**fields)

    def ask_json(self, request: Request[Any]) -> bytes:
        return json.dumps(self.request(**json.loads(write_request(request)))).encode()

    def _create(self, name: str, options: dict[str, str] | None = None) -> dict[str, object]:
        options = options or {}
        if options.keys() - {"memory", "gpus", "priority", "wait"}:
            raise SchedulerRefused("invalid", "unknown option: the known ones are memory, gpus, wait")
        self.volumes[name] = options
        return {}

    def _remove(self, name: str) -> dict[str, object]:
        if self.mounts.get(name):
            raise SchedulerRefused("busy", f"volume {name} is in use: stop its container first")
        self.volumes.pop(name, None)
        return {}

    def _mount(self, name: str, id: str) -> dict[str, object]:  # noqa: A002, ARG002
        if name not in self.volumes:
            raise SchedulerRefused("unknown", f"no volume {name}")
        self.mounts[name] = self.mounts.get(name, 0) + 1
        return {"mountpoint": f"/simulated/{name}"}

    def _unmount(self, name: str, id: str) -> dict[str, object]:  # noqa: A002, ARG002
        self.mounts[name] -= 1
        return {}

    def _containers(self, name: str | None = None) -> dict[str, object]:
        if name is not None and name not in self.volumes:
            raise SchedulerRefused("unknown", f"no volume {name}")
        names = self.volumes if name is None else [name]
        return {"containers": [self._container(each) for each in names]}

    def _active_containers(self) -> dict[str, object]:
        return {"containers": [], "others": [{"state": "created", "residency": None, "count": len(self.volumes)}]}

    def _container(self, name: str) -> dict[str, object]:
        share = {"uuid": UUID, "limit": 2 << 30, "grant": 1 << 30, "usage": 512 << 20}
        state = "running" if self.mounts.get(name) else "created"
        kept = {
            "name": name,
            "mountpoint": f"/simulated/{name}",
            "created": 1700000000.5,
            "state": state,
            "mounts": self.mounts.get(name, 0),
            "injected": name in self.injected,
        }
        return {**kept, "devices": [share], "sessions": [], "waiting": []}

    def _devices(self) -> dict[str, object]:
        return {"devices": [{"uuid": UUID, "total": 16 << 30}], "policy": "best-fit"}

    def _listed(self, asked: float, containers: object, volumes: object) -> dict[str, object]:  # noqa: ARG002
        return {}

    def _events(self, since: int) -> dict[str, object]:
        return {"events": [], "next": since}


class AdminSocket:
    """Serves a FakeScheduler on a real socket, one connection at a time, until the listener is closed."""

    def __init__(self, path: Path, scheduler: FakeScheduler) -> None:
        self._scheduler = scheduler
        self.causes: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # A server that is being ended does not wait for its answers.
            with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        stream = MessageStream()
        while data := connection.recv(1 << 16):
            for number, message in stream.receive(data):
                assert isinstance(message, Admin)
                connection.sendall(pack(AdminReply(json.dumps(self._reply(message)).encode()), number))

    def _reply(self, message: Admin) -> dict[str, object]:
        question = json.loads(message.body)
        self.causes.append(question.pop("cause", ""))
        try:
            return {"ok": self._scheduler.request(**question)}
        except SchedulerRefused as refusal:
            return {"error": {"code": refusal.code, "text": refusal.text}}


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # A read-only view is a mount; tests/lifecycle has it in Engines of its own.
    return Settings(directory=tmp_path / "d", socket=tmp_path / "p.sock", read_only="no")


@pytest.fixture
def docker(scheduler, settings):
    return create_app(scheduler, settings).test_client()


@pytest.fixture(scope="session")
def wait_until_served():
    def answers(path: Path) -> bool:
        # A new socket each time: one that has been connected says EISCONN for ever.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            # gunicorn binds its socket a moment before it listens: until then a connection is refused.
            return connection.connect_ex(str(path)) == 0

    def wait(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        end = time.monotonic() + 30
        while not answers(path):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.01)

    return wait


@pytest.fixture
def admin_socket(scheduler, settings) -> Iterator[AdminSocket]:
    settings.directory.mkdir()
    served = AdminSocket(settings.admin_socket, scheduler)
    yield served
    served.close()
