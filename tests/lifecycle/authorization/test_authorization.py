"""The plugin as an Engine's authorization plugin: a GPU without a limit is refused, other calls pass."""

import pytest

pytestmark = pytest.mark.engine

VOLUME = "type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu"


@pytest.fixture(scope="module")
def guarded(engine, plugin):
    engine.configure({"authorization-plugins": [plugin]})
    yield engine
    # Before the plugin is disabled: an Engine that names a disabled one in daemon.json ends when it reads that.
    engine.configure({"authorization-plugins": []})


@pytest.mark.parametrize("request_gpu", [("--device", "/dev/nvidia0"), ("--gpus", "all")])
def test_a_gpu_without_a_limit_is_refused_with_the_line_to_type(guarded, request_gpu):
    before = guarded("ps", "-a", "-q")
    done = guarded.run("create", *request_gpu, "convgpu/demo", "true", check=False)
    assert done.returncode != 0
    assert "--mount type=volume,volume-driver=convgpu,volume-opt=memory=2g,dst=/run/convgpu" in done.stderr
    assert guarded("ps", "-a", "-q") == before


def test_a_gpu_with_a_limit_passes(guarded):
    hook = ("-e", "LD_PRELOAD=/run/convgpu/libconvgpu.so")
    created = guarded("create", "--device", "/dev/nvidia0", "--mount", VOLUME, *hook, "convgpu/demo", "true")
    guarded("rm", "-v", created)


def test_a_container_without_gpu_passes(guarded):
    assert guarded("run", "--rm", "--network", "none", "convgpu/demo", "echo", "passed") == "passed"
    assert "convgpu/demo" in guarded("images")
