"""What `convgpu authz status` says is wrong; on a real Engine: tests/lifecycle/authorization/test_authz_command.py."""

from types import SimpleNamespace

from click.testing import CliRunner

from convgpu.cli.setup import authorization


def test_a_plugin_that_does_not_answer_is_named_as_that(monkeypatch, tmp_path):
    """It was killed, and is just being started again: the Engine's settings are right."""
    settings = tmp_path / "daemon.json"
    settings.write_text('{"authorization-plugins": ["convgpu"]}')
    plugin = {"Enabled": True, "Id": "none", "Config": {"Interface": {"Socket": "convgpu.sock"}}}
    engine = SimpleNamespace(get=lambda _path: plugin)
    monkeypatch.setattr(authorization.Engine, "connect", lambda _http: engine)
    monkeypatch.setattr(authorization, "_read_status", lambda _path: {})
    shown = CliRunner().invoke(authorization.status, ["--daemon-json", str(settings), "--gpu-volume-driver", "convgpu"])
    assert shown.exit_code == 1
    [problem] = [line for line in shown.stdout.splitlines() if line.startswith("! ")]
    assert problem.startswith("! the plugin does not answer")
    assert "look again" in problem
    assert "asked: no" in shown.stdout
