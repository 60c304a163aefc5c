"""The ways into ConvGPU beside a volume, and the doctor, on a real Engine."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from docker_engine import Engine, version
from forked_command import run_command

pytestmark = pytest.mark.engine

GIB = 1 << 30
PROGRAMS = Path(sys.executable).parent
DRIVER = "LD_LIBRARY_PATH=/run/convgpu/driver"
LIBRARY = "/run/convgpu/libconvgpu.so"
HOLD = ("convgpu/demo", "gpu-hold", "--wait-for-stdin")


def convgpu(engine: Engine, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command(*words, env={**os.environ, "DOCKER_HOST": engine.host})


def limits(engine, name):
    """Return the limits of a container by `convgpu ps`."""
    rows = json.loads(convgpu(engine, "ps", "--json").stdout)
    return [[gpu["limit"] for gpu in row["gpus"]] for row in rows if name in [one["name"] for one in row["containers"]]]


def assert_covered(engine, plugin, container, limit):
    """A running container has its limit, by `docker exec` with an empty environment too; its end is noticed."""
    engine.wait_for("it uses memory", lambda: sum(usages(engine, plugin)) >= GIB)
    assert limits(engine, container) == [[limit]]
    clean = ("exec", container, "env", "-i", DRIVER, "/usr/local/bin/gpu-hold", "16g")
    assert "it would exceed the limit" in engine.run(*clean, check=False).stderr
    engine("kill", container)
    engine("rm", "-v", container)
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])


def usages(engine, plugin):
    return [gpu["usage"] for row in engine.containers(plugin) for gpu in row["devices"]]


def test_the_command_s_run_covers_exec_as_well(engine, plugin):
    done = convgpu(engine, "run", "--gpu-memory", "2g", "-d", "-i", "--name", "typed", "--network", "none", *HOLD, "1g")
    assert done.returncode == 0, done.stderr
    assert_covered(engine, plugin, "typed", 2 * GIB)


def test_create_makes_what_start_runs(engine, plugin):
    done = convgpu(engine, "create", "--gpu-memory", "2g", "-i", "--name", "made", "--network", "none", *HOLD, "1g")
    assert done.returncode == 0, done.stderr
    engine("start", "made")
    assert_covered(engine, plugin, "made", 2 * GIB)


def test_variables_alone(engine, plugin):
    words = ("--volume-driver", plugin, "-v", "/run/convgpu", "-e", "CONVGPU_MEMORY=2g", "-e", f"LD_PRELOAD={LIBRARY}")
    engine("run", "-d", "-i", "--name", "said", "--network", "none", *words, "-e", DRIVER, *HOLD, "1g")
    engine.wait_for("it uses memory", lambda: sum(usages(engine, plugin)) >= GIB)
    assert limits(engine, "said") == [[2 * GIB]]
    kept = ("exec", "said", "/usr/local/bin/gpu-hold", "16g")
    assert "it would exceed the limit" in engine.run(*kept, check=False).stderr
    engine("kill", "said")
    engine("rm", "-v", "said")
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])


@pytest.mark.parametrize(
    ("environment", "limit"), [("CONVGPU_MEMORY=2g", 2 * GIB), ("NVIDIA_VISIBLE_DEVICES=all", 3 * GIB)]
)
def test_the_runtime_covers_a_container_without_options(engine, plugin, runtime, environment, limit):
    engine("run", "-d", "-i", "--name", "plain", *runtime, "-e", environment, *HOLD, "1g")
    assert_covered(engine, plugin, "plain", limit)


def test_the_runtime_takes_a_volume_for_one_and_nothing_else(engine, plugin, runtime):
    volume = ("--mount", f"type=volume,volume-driver={plugin},volume-opt=memory=1g,dst=/run/convgpu")
    gpu = ("-e", "NVIDIA_VISIBLE_DEVICES=all", "-e", "CONVGPU_MEMORY=2g")
    listed = ("convgpu/demo", "ls", "/run/convgpu")
    hook = ("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so")
    assert "libconvgpu.so" in engine("run", "--rm", *runtime, *gpu, *volume, *hook, *listed)
    refused = engine.run("run", "--rm", *runtime, *gpu, *volume, *listed, check=False)
    assert (refused.returncode != 0, "give it -e LD_PRELOAD=" in refused.stderr) == (True, True)
    refused = engine.run("run", "--rm", *runtime, *gpu, "--tmpfs", "/run/convgpu", "convgpu/demo", "true", check=False)
    assert refused.returncode != 0
    assert "something else is mounted at /run/convgpu" in refused.stderr


def test_the_runtime_leaves_other_containers_alone(engine, plugin, runtime):
    assert engine("run", "--rm", *runtime, "convgpu/demo", "sh", "-c", "ls /run/convgpu 2>&1 || true") != ""
    assert engine.containers(plugin) == []


def test_the_runtime_starts_nothing_without_its_limit_and_leaves_nothing(engine, plugin, runtime):
    refused = engine.run("run", "--rm", *runtime, "-e", "CONVGPU_MEMORY=20XB", "convgpu/demo", "true", check=False)
    assert (refused.returncode != 0, "'20XB' is not a size" in refused.stderr) == (True, True)
    engine("plugin", "disable", "-f", plugin)
    try:
        refused = engine.run("run", "--rm", *runtime, "-e", "CONVGPU_MEMORY=2g", "convgpu/demo", "true", check=False)
        assert (refused.returncode != 0, "convgpu: " in refused.stderr) == (True, True)
    finally:
        engine("plugin", "enable", plugin)
    assert engine.containers(plugin) == []


def test_a_container_of_the_runtime_starts_again_with_its_limit(engine, plugin, runtime):
    engine("run", "-d", "-i", "--name", "again", *runtime, "-e", "CONVGPU_MEMORY=2g", *HOLD, "1g")
    engine("kill", "again")
    engine("start", "again")
    assert_covered(engine, plugin, "again", 2 * GIB)


def test_the_doctor_proves_that_a_limit_holds_and_that_a_pause_works(engine, plugin):
    done = convgpu(engine, "doctor", "--json")
    found = {finding["check"]: finding["state"] for finding in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    wanted = {"Engine", "plugin", "GPU", "limit", "driver", "shown", "exec", "pause", "end"}
    assert {check: found.get(check) for check in wanted} == dict.fromkeys(wanted, "ok")
    assert engine.containers(plugin) == []
    assert engine("images", "-q", "convgpu/doctor") == ""


def test_a_disabled_plugin_is_said_to_be_and_what_to_do(engine, plugin):
    engine("plugin", "disable", "-f", plugin)
    try:
        done = convgpu(engine, "doctor")
        assert (done.returncode, done.stdout.splitlines()[-1].strip()) == (
            1,
            f"Enable it with: docker plugin enable {plugin}",
        )
        for words in (("ps",), ("run", "--gpu-memory", "2g", "convgpu/demo")):
            done = convgpu(engine, *words)
            expected = f"Error: the plugin '{plugin}' is disabled.\nEnable it with: docker plugin enable {plugin}\n"
            assert (done.returncode, done.stderr) == (3, expected)
    finally:
        engine("plugin", "enable", plugin)


def test_a_cdi_device_is_a_limit(engine, plugin, cdi_folder):
    written = convgpu(engine, "install", "cdi", "--cdi-folder", str(cdi_folder))
    if version() < (25, 0):  # `make test-engines` tries newer ones
        assert (written.returncode, list(cdi_folder.iterdir())) == (3, [])
        assert "does not look for CDI devices" in written.stderr
        return
    assert written.returncode == 0, written.stderr
    device = ("--device", "convgpu.io/memory=2g")
    # The Engine reads the folder again when it changes.
    made = ("create", "--rm", *device, "convgpu/demo", "true")
    engine.wait_for("the Engine knows the device", lambda: engine.run(*made, check=False).returncode == 0)
    engine("run", "-d", "-i", "--name", "cdi", "--network", "none", *device, *HOLD, "1g")
    assert_covered(engine, plugin, "cdi", 2 * GIB)
    again = convgpu(engine, "install", "cdi", "--cdi-folder", str(cdi_folder))
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, f"{cdi_folder}/convgpu.json is up to date.")
    seen = convgpu(engine, "doctor", "--no-pause").stdout
    assert "ok    CDI       --device convgpu.io/memory=SIZE: up to 16g" in seen
    unlisted = engine.run("run", "--rm", "--device", "convgpu.io/memory=17g", "convgpu/demo", "true", check=False)
    assert "unresolvable CDI devices convgpu.io/memory=17g" in unlisted.stderr
    assert convgpu(engine, "install", "cdi", "--cdi-folder", str(cdi_folder), "--uninstall").returncode == 0
    assert list(cdi_folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(engine, plugin, number):
    """Interrupted at any moment before docker takes over, while a probe of the image is made and removed, too."""
    command = [PROGRAMS / "convgpu", "run", "--dry-run", "--gpu-memory", "2g", "convgpu/demo"]
    environment = {**os.environ, "DOCKER_HOST": engine.host}
    for twentieth in range(2, 14, 2):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(twentieth / 20)
        process.send_signal(number)
        process.wait(timeout=300)
    assert engine("ps", "-a", "-q") == ""
    assert engine.containers(plugin) == []


def test_a_disappearing_doctor_leaves_nothing_behind(engine, plugin):
    environment = {**os.environ, "DOCKER_HOST": engine.host}
    process = subprocess.Popen([PROGRAMS / "convgpu", "doctor"], env=environment, stdout=subprocess.DEVNULL)
    engine.wait_for("it has a container", lambda: engine("ps", "-a", "-q") != "")
    process.terminate()
    assert process.wait(timeout=300) == 128 + signal.SIGTERM
    assert engine("ps", "-a", "-q") == ""
    assert engine("images", "-q", "convgpu/doctor") == ""
    engine.wait_for("nothing is left", lambda: engine.containers(plugin) == [])
