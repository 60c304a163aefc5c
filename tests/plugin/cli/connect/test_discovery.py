"""Which socket a command asks: root's, or the one for readers."""

import os
import socket
from pathlib import Path

import pytest

from convgpu.cli.connect import discovery, engine_endpoint
from convgpu.cli.connect.engine_endpoint import Endpoint


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine_endpoint, "current", lambda: Endpoint(f"unix://{tmp_path}/docker.sock"))
    return tmp_path


def listen(path: Path) -> socket.socket:
    path.parent.mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_who_is_not_root_asks_the_socket_for_readers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with listen(run / "convgpu/mine.sock"):
        assert discovery.find_socket("mine:latest") == run / "convgpu/mine.sock"


@pytest.mark.parametrize("user", [0, 1000])
def test_root_and_who_finds_none_ask_the_engine(run: Path, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    class NoEngineError(Exception):
        pass

    def connect(_: object) -> None:
        raise NoEngineError

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(discovery.Engine, "connect", connect)
    name = "mine" if user == 0 else "other"
    with listen(run / "convgpu/mine.sock"), pytest.raises(NoEngineError):
        discovery.find_socket(name)
