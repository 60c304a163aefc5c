"""`convgpu authz` on an Engine of its own: on, off, and recovery from every lockout."""

import json
import os
import subprocess
import sys

import pytest
from docker_engine import Engine
from forked_command import run_command
from raw_engine import RawEngine

pytestmark = pytest.mark.engine

PRIVILEGED = {"Image": "none", "Cmd": ["true"], "HostConfig": {"Privileged": True}}


class Host:
    """An Engine, and a user who types `convgpu authz` on its host."""

    def __init__(self, engine: Engine, plugin: str) -> None:
        self.engine, self.plugin = engine, plugin
        self.raw = RawEngine(f"{engine.directory}/docker.sock")

    def authz(self, *words: str) -> subprocess.CompletedProcess[str]:
        settings = ("--daemon-json", str(self.engine.settings), "--gpu-volume-driver", self.plugin)
        return run_command("-H", self.engine.host, "authz", *words, *settings)

    def status(self) -> dict[str, object]:
        return json.loads(self.authz("status", "--json").stdout)

    def judges(self) -> bool:
        """Tell whether the Engine asks the plugin."""
        return self.raw.post("/containers/create", PRIVILEGED).denied

    def settings(self) -> dict[str, object]:
        return json.loads(self.engine.settings.read_text())


@pytest.fixture
def host(engine, plugin):
    before = engine.settings.read_text()
    yield Host(engine, plugin)
    engine.settings.write_text(before)
    engine.configure({"authorization-plugins": []})
    if engine.inspect("plugin", plugin, "{{.Enabled}}") == "false":
        engine("plugin", "enable", plugin)


def test_on_and_off(host):
    text = '{\n    "live-restore": false,\n    "labels": ["gr\u00f6\u00dfe=1"]\n}\n'
    host.engine.settings.write_text(text)
    planned = host.authz("enable", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("would name convgpu in ")
    assert (host.engine.settings.read_text(), host.judges()) == (text, False)

    done = host.authz("enable")
    assert done.returncode == 0, done.stderr
    assert host.judges()
    named = text[:-2].rstrip() + ',\n    "authorization-plugins": [\n        "convgpu"\n    ]\n}\n'
    named = named.replace('["gr\u00f6\u00dfe=1"]', '[\n        "gr\u00f6\u00dfe=1"\n    ]')
    assert host.engine.settings.read_text() == named
    assert host.engine.settings.with_name("daemon.json.before-convgpu").read_text() == text
    assert host.authz("enable").returncode == 0
    found = host.status()
    assert (found["plugin"], found["named"], found["in_force"], found["mode"]) == ("enabled", True, True, "enforce")
    assert (found["problems"], host.authz("status").returncode) == ([], 0)

    assert host.authz("disable", "--dry-run").stdout.startswith("would take convgpu out of ")
    assert host.judges()
    assert host.authz("disable").returncode == 0
    assert not host.judges()
    assert host.settings() == json.loads(text)
    assert host.authz("disable").returncode == 0


def test_a_disabled_plugin_is_not_named(host):
    host.engine("plugin", "disable", "-f", host.plugin)
    before = host.settings()
    refused = host.authz("enable")
    assert (refused.returncode, host.settings()) == (3, before)
    assert "docker plugin enable convgpu" in refused.stderr
    assert host.engine.process.poll() is None


def test_settings_that_name_a_missing_plugin_are_not_loaded(host):
    host.engine.settings.write_text(json.dumps({"authorization-plugins": ["gone"]}))
    refused = host.authz("enable")
    assert refused.returncode == 1
    assert "gone, which is not there: the Engine would end" in refused.stderr
    assert host.engine.process.poll() is None


@pytest.mark.parametrize("text", ["{", "[]", '{"authorization-plugins": "convgpu"}', "\x00"])
def test_settings_with_errors_stay_unchanged(host, text):
    host.engine.settings.write_text(text)
    for words in (["enable"], ["disable"], ["status"]):
        assert host.authz(*words).returncode == 1
    assert host.engine.settings.read_text() == text


def test_a_plugin_disabled_while_the_settings_name_it(host):
    """The plugin was disabled by force: the Engine does not ask it, and the next reload would end the Engine."""
    assert host.authz("enable").returncode == 0
    host.engine.configure({"authorization-plugins": []})
    host.engine("plugin", "disable", "-f", host.plugin)
    host.engine.settings.write_text(json.dumps({"authorization-plugins": [host.plugin]}))
    status = host.authz("status")
    assert status.returncode == 1
    assert "the Engine ends when it is restarted or reloaded. Do `convgpu authz disable` now." in status.stdout
    assert host.authz("disable").returncode == 0
    assert host.settings() == {}
    assert host.engine.process.poll() is None
    host.engine("plugin", "enable", host.plugin)
    assert host.authz("enable").returncode == 0
    assert host.judges()


def test_the_order_of_an_upgrade(host):
    """Off, disable, (upgrade: test_plugin_lifecycle), enable, on."""
    assert host.authz("enable").returncode == 0
    assert "plugin-management" in host.engine.run("plugin", "disable", "-f", host.plugin, check=False).stderr
    assert host.authz("disable").returncode == 0
    host.engine("plugin", "disable", "-f", host.plugin)
    host.engine("plugin", "enable", host.plugin)
    assert host.authz("enable").returncode == 0
    assert host.judges()


def test_a_removed_plugin_locks_all_users_out_until_the_settings_drop_it(start_engine):
    """`docker plugin rm -f` by an administrator: every call fails; recovery as in docs/operations.md."""
    with start_engine() as engine:
        engine("plugin", "set", "convgpu", "CONVGPU_DEVICES=simulated:1GiB", f"run.source={engine.directory}")
        etc = engine.directory / "etc"
        (etc / "convgpu").mkdir(parents=True)
        (etc / "convgpu/rules.toml").write_text('administrators = ["local"]')
        engine("plugin", "set", "convgpu", f"etc.source={etc}")
        engine("plugin", "enable", "convgpu")
        host = Host(engine, "convgpu")
        assert host.authz("enable").returncode == 0
        assert not host.judges()  # local is an administrator
        # It is removed, and then the Engine finds nobody to ask whether it may say so; so with every other call.
        locked = engine.run("plugin", "rm", "-f", "convgpu", check=False, timeout=300)
        assert "plugin convgpu:latest failed with error" in locked.stderr
        done = host.authz("disable")
        assert done.returncode == 0, done.stderr
        assert engine.process.poll() is None
        assert engine("ps", "-q") == ""
        # Somebody writes the name again and restarts: the Engine does not come up, and is helped without it.
        engine.end()
        engine.settings.write_text('{"authorization-plugins": ["convgpu"]}')
        with pytest.raises(AssertionError, match="failed to validate authorization plugin"):
            engine.start()
        done = host.authz("disable", "--pid-file", str(engine.directory / "pid"))
        assert done.returncode == 0, done.stderr
        assert host.settings() == {}
        engine.start()


def test_without_root_nothing_is_changed(host):
    if os.geteuid() != 0:
        return
    command = ["setpriv", "--reuid=65534", "--clear-groups", "--regid=65534", sys.executable, "-m", "convgpu.cli"]
    command += ["-H", host.engine.host, "authz", "enable", "--daemon-json", str(host.engine.settings)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode != 0
    assert not host.judges()
