"""Everything off again: what a plugin that is disabled would leave."""

from typing import Any

import pytest
from click.testing import CliRunner

from convgpu.cli.setup.lifecycle import uninstall
from convgpu.cli.terminal.errors import Unavailable


class Engine:
    """One with a plugin that was disabled, whose volumes it lists only when that is enabled."""

    def __init__(self, *, comes_up: bool) -> None:
        self.comes_up = comes_up
        self.enabled = False
        self.done: list[tuple[str, ...]] = []

    def get(self, path: str, **_: object) -> Any:
        if path == "/volumes":
            return {"Volumes": [{"Name": "kept", "Driver": "convgpu:latest"}] if self.enabled else []}
        return []

    def docker(self, *words: str) -> None:
        self.done.append(words)
        if words[:2] == ("plugin", "enable"):
            if not self.comes_up:
                raise Unavailable("it does not come up")
            self.enabled = True


REMOVED = ("plugin", "rm", "convgpu")
CASES = {
    (True, False): [
        ("plugin", "enable", "convgpu"),
        ("volume", "rm", "kept"),
        ("plugin", "disable", "convgpu"),
        REMOVED,
    ],
    (False, False): [("plugin", "enable", "convgpu"), REMOVED],
    (True, True): [],
}


@pytest.mark.parametrize(("comes_up", "dry_run"), CASES)
def test_a_disabled_plugin_is_enabled_since_only_then_its_volumes_are_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, comes_up: bool, dry_run: bool
) -> None:
    engine = Engine(comes_up=comes_up)
    monkeypatch.setattr(uninstall.Engine, "connect", lambda _http: engine)
    monkeypatch.setattr(uninstall, "look_up", lambda *_: {"Enabled": False})
    monkeypatch.setattr(uninstall, "docker", lambda asked, *words: asked.docker(*words))
    monkeypatch.setattr(uninstall, "_files", lambda _engine: [])
    words = ["--daemon-json", str(tmp_path / "daemon.json"), *(["--dry-run"] if dry_run else [])]
    done = CliRunner().invoke(uninstall.uninstall, words)
    assert done.exit_code == 0, done.output
    assert engine.done == CASES[comes_up, dry_run]
