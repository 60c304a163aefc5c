"""Reading without root: what the application of readers answers, and which group reaches its socket."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from convgpu.client.scheduler import Scheduler
from convgpu.plugin import reader_access
from convgpu.plugin.server.readers import create_app
from convgpu.plugin.settings import Settings

CHANGES = [
    ("POST", "/v1/policy"),
    ("POST", "/v1/placement"),
    ("POST", "/v1/devices/0/drain"),
    ("POST", "/v1/containers/a/limits"),
    ("POST", "/v1/containers/a/suspend"),
    ("POST", "/v1/containers/a/resume"),
    ("POST", "/VolumeDriver.Create"),
    ("POST", "/VolumeDriver.Remove"),
    ("POST", "/AuthZPlugin.AuthZReq"),
    ("PUT", "/v1/policy"),
    ("DELETE", "/v1/containers/a"),
    ("OPTIONS", "/v1/policy"),
]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_nothing_can_be_changed(scheduler: Scheduler, method: str, path: str) -> None:
    answer = create_app(scheduler).test_client().open(path, method=method)
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
    assert "sudo convgpu" in answer.json["error"]["text"]
    assert scheduler.asked == []  # type: ignore[attr-defined]  # a fake


def test_no_route_takes_another_method_than_reading(scheduler: Scheduler) -> None:
    methods = {method for rule in create_app(scheduler).url_map.iter_rules() for method in rule.methods or ()}
    assert methods <= {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("path", ["/v1/containers", "/metrics", "/dashboard/"])
def test_reading_works(scheduler: Scheduler, path: str) -> None:
    assert create_app(scheduler).test_client().get(path).status_code == 200


def test_a_body_is_not_read(scheduler: Scheduler) -> None:
    answer = create_app(scheduler).test_client().get("/v1/containers", data=b"x" * 1000)
    assert answer.status_code in {200, 413}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    engine = tmp_path / "docker.sock"
    engine.touch()
    os.chown(engine, 0, 4711)
    return Settings(name="registry.example/my/convgpu:1.0", engine=engine)


def test_by_default_it_is_the_group_that_may_use_docker(settings: Settings) -> None:
    assert reader_access.find_group(settings) == 4711
    os.chown(settings.engine, 0, 0)  # nobody but root may
    assert reader_access.find_group(settings) is None
    assert reader_access.find_group(replace(settings, engine=Path("/nowhere"))) is None


def test_a_group_is_named_or_numbered(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "group"
    file.write_text("root:x:0:\nbroken\nlab:x:1234:alice,bob\n")
    monkeypatch.setattr(reader_access, "_GROUPS", (tmp_path / "none", file))
    assert reader_access.find_group(replace(settings, readers="lab")) == 1234
    assert reader_access.find_group(replace(settings, readers="77")) == 77
    assert reader_access.find_group(replace(settings, readers="none")) is None
    with pytest.raises(ValueError, match="CONVGPU_READERS=nobody-knows: the host has no such group"):
        reader_access.find_group(replace(settings, readers="nobody-knows"))


def test_the_socket_lies_beside_the_engines_and_is_the_groups(settings: Settings) -> None:
    socket = settings.reader_socket
    assert socket == settings.engine.parent / "convgpu/registry.example_my_convgpu.sock"
    assert reader_access.prepare(settings)
    socket.touch(0o600)
    reader_access.open_to_group(settings)
    status = socket.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 4711, 0o660)


@pytest.mark.parametrize("readers", ["none", "no-such-group"])
def test_without_readers_there_is_no_socket(settings: Settings, readers: str) -> None:
    assert not reader_access.prepare(replace(settings, readers=readers))
    assert not settings.reader_socket.parent.exists()
