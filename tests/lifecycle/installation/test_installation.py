"""The released plugin from a registry: installed, upgraded, and everything taken off again, by our own commands."""

import json
import os

import pytest
from forked_command import run_command

pytestmark = pytest.mark.engine

NAME = "released"
GIB = 1 << 30


@pytest.fixture
def convgpu(engine, tmp_path):
    """Our command on the Engine's host, by a user of their own."""

    def run(*words):
        environment = {**os.environ, "DOCKER_CONFIG": str(tmp_path / "docker"), "CONVGPU_NAME": NAME}
        return run_command("-H", engine.host, *words, env=environment)

    return run


def succeed(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def settings_of(engine):
    return ("--daemon-json", str(engine.settings))


def runtimes(engine):
    return json.loads(engine("info", "--format", "{{json .Runtimes}}")), engine(
        "info", "--format", "{{.DefaultRuntime}}"
    )


def without_runtimes(settings):
    return {key: value for key, value in settings.items() if "runtime" not in key}


def check_runtime(engine, convgpu):
    before = engine.settings.read_text()
    words = ("install", "runtime", "--write", *settings_of(engine))
    engine.settings.write_text(before[:-1])  # half of it
    refused = convgpu(*words)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 2), refused.stderr
    assert "is not JSON" in refused.stderr
    assert engine.settings.read_text() == before[:-1]
    engine.settings.write_text(before)

    assert "Every container that gets a GPU is covered" in succeed(convgpu(*words, "--default", "--memory", "3g"))
    found = json.loads(engine.settings.read_text())
    assert found["runtimes"]["convgpu"]["runtimeArgs"] == [
        "--convgpu-memory=3g",
        f"--convgpu-directory={engine.directory_of(NAME)}",
    ]
    assert without_runtimes(found) == without_runtimes(json.loads(before))
    named, default = runtimes(engine)
    assert ("convgpu" in named, default) == (True, "convgpu")
    assert "already" in succeed(convgpu(*words, "--default", "--memory", "3g"))


def check_upgrade(engine, convgpu, hold, images):
    holder = hold(NAME, "4g", "2g")
    holder.wait_until_holding(2 * GIB)
    refused = convgpu("upgrade", f"{images[0]}-not", "--grant-all-permissions", *settings_of(engine))
    assert refused.returncode == 3, refused.stderr
    assert "Nothing was changed" in refused.stderr
    assert "--grant-all-permissions" in convgpu("upgrade", images[1], *settings_of(engine)).stderr
    assert engine.inspect("plugin", NAME, "{{.Enabled}} {{.PluginReference}}") == f"true {images[0]}"

    succeed(convgpu("authz", "enable", *settings_of(engine)))
    said = succeed(convgpu("upgrade", images[1], "--grant-all-permissions", *settings_of(engine)))
    assert f"The plugin {NAME} is {images[1]}; it was {images[0]}." in said
    assert engine.inspect("plugin", NAME, "{{.Enabled}} {{.PluginReference}}") == f"true {images[1]}"
    status = json.loads(succeed(convgpu("authz", "status", "--json", *settings_of(engine))))
    assert (status["in_force"], status["problems"]) == (True, [])
    engine.wait_for("the usage is known again", lambda: holder.usage() >= 2 * GIB)
    return holder


def check_uninstall(engine, convgpu, holder):
    words = ("uninstall", *settings_of(engine))
    refused = convgpu(*words)
    assert (refused.returncode, "docker rm -f -v" in refused.stderr) == (1, True)
    assert engine.inspect("plugin", NAME, "{{.Enabled}}") == "true"
    holder.remove()
    engine("volume", "create", "-d", NAME, "-o", "memory=1g", "kept")
    planned = succeed(convgpu(*words, "--dry-run"))
    assert planned.count("Would remove: ") == 5, planned
    assert engine.inspect("plugin", NAME, "{{.Enabled}}") == "true"
    done = succeed(convgpu(*words))
    for text in (f"{NAME} in ", "the runtime in ", "docker-convgpu", "volume kept", f"plugin {NAME}"):
        assert f"{text}" in done
    assert engine.run("plugin", "inspect", NAME, check=False).returncode != 0
    named, default = runtimes(engine)
    assert ("convgpu" in named, default) == (False, "runc")
    assert "Nothing of ConvGPU is set up" in succeed(convgpu(*words))


def test_from_the_registry_to_nothing(engine, convgpu, images, hold):
    before = engine.settings.read_bytes()
    words = ("install", "plugin", images[0], *engine.settings_of_plugins())
    said = succeed(convgpu(*words, "--grant-all-permissions"))
    assert f"The plugin {NAME} is enabled. GPUs: 0: Simulated GPU, " in said
    assert "version 0.1.0" in engine.inspect("plugin", NAME, "{{.Config.Description}}")
    assert "is there" in convgpu(*words).stderr
    succeed(convgpu("install"))
    check_runtime(engine, convgpu)
    holder = check_upgrade(engine, convgpu, hold, images)
    check_uninstall(engine, convgpu, holder)
    assert engine.settings.read_bytes() == before


@pytest.mark.parametrize("image", ["No//Such:1", "localhost:1/convgpu:1"])
def test_an_image_that_cannot_be_had_is_one_clear_error(engine, convgpu, image):
    done = convgpu("install", "plugin", image, "--grant-all-permissions")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 2), done.stderr
    assert "Name the image: REGISTRY/convgpu:VERSION" in done.stderr
    assert NAME not in engine("plugin", "ls")


def test_a_reference_that_is_none_is_not_pushed(engine, push_plugin):
    pushed = push_plugin(engine, "No//Such:1")
    assert pushed.returncode == 1
    assert pushed.stderr.splitlines()[-1].startswith("convgpu: No//Such:1 cannot be made: ")
    assert push_plugin(engine, "convgpu").stderr.endswith("names no image of a registry: REGISTRY/NAME:VERSION\n")
