"""Whether programs of a container load the hook: the library stands in their own maps, or nothing keeps the limit."""

import pytest
from raw_engine import RawEngine

pytestmark = pytest.mark.engine

LINKED = "convgpu-linked"  # an image whose /run is a link


def volume(target):
    return ("--mount", f"type=volume,volume-driver=convgpu,volume-opt=memory=1g,dst={target}")


def preload(target):
    return ("-e", f"LD_PRELOAD={target}/libconvgpu.so")


OURS = (*volume("/run/convgpu"), *preload("/run/convgpu"))
LOOK = ("grep", "-o", "-m1", "[^ ]*/libconvgpu.so", "/proc/self/maps")
# Options that change what lies around the hook, or who runs; the image; and where the hook is found.
AROUND = {
    "plain": (OURS, "convgpu/demo", "/run/convgpu"),
    "elsewhere": ((*volume("/other"), *preload("/other")), "convgpu/demo", "/other"),
    "tmpfs over /run": ((*OURS, "--tmpfs", "/run"), "convgpu/demo", "/run/convgpu"),
    "volume over /run": ((*OURS, "-v", "/run"), "convgpu/demo", "/run/convgpu"),
    "read-only": ((*OURS, "--read-only"), "convgpu/demo", "/run/convgpu"),
    "another user": ((*OURS, "--user", "65534:65534"), "convgpu/demo", "/run/convgpu"),
    "no new privileges": ((*OURS, "--security-opt", "no-new-privileges"), "convgpu/demo", "/run/convgpu"),
    "another cgroup": (
        (*OURS, "--cgroup-parent", "/teams-vision", "--cgroupns", "host"),
        "convgpu/demo",
        "/run/convgpu",
    ),
    "/run is a link": (OURS, LINKED, "/tmp/convgpu"),
}


@pytest.fixture(scope="module")
def guarded(engine, plugin):
    engine.configure({"authorization-plugins": []})
    made = engine("create", "--network", "none", "convgpu/demo", "sh", "-c", "rm -rf /run && ln -s /tmp /run")
    engine("start", "-a", made)
    engine("commit", made, LINKED)
    engine("rm", made)
    engine.configure({"authorization-plugins": [plugin]})
    yield engine
    engine.configure({"authorization-plugins": []})
    engine("image", "rm", "-f", LINKED)


@pytest.mark.parametrize("name", AROUND)
def test_the_hook_is_loaded_whatever_lies_around_it(guarded, name):
    options, image, place = AROUND[name]
    assert guarded("run", "--rm", "--network", "none", *options, image, *LOOK) == f"{place}/libconvgpu.so"


def test_exec_loads_it_as_well(guarded):
    running = guarded("run", "-d", "--network", "none", "--stop-signal", "KILL", *OURS, "convgpu/demo", "sleep", "600")
    for options in (
        (),
        ("--user", "65534"),
        ("-e", "LD_LIBRARY_PATH=/x"),
        ("-w", "/run/convgpu"),
        preload("/run/convgpu"),
    ):
        assert guarded("exec", *options, running, *LOOK) == "/run/convgpu/libconvgpu.so", options
    for options in (("-e", "LD_PRELOAD="), ("-e", "LD_PRELOAD"), ("-e", "LD_AUDIT=/x"), ("--privileged",)):
        assert "authorization denied" in guarded.run("exec", *options, running, *LOOK, check=False).stderr, options
    guarded("rm", "-f", "-v", running)


def test_a_restart_policy_starts_nothing_that_was_never_judged(guarded, plugin):
    """A container whose create told nothing, and that was never started, does not come up with the Engine."""
    raw = RawEngine(f"{guarded.directory}/docker.sock")
    guarded.configure({"authorization-plugins": []})
    donor = guarded("create", "-v", "/etc:/x", "convgpu/demo", "true")
    guarded.configure({"authorization-plugins": [plugin]})
    made = guarded(
        "create", "--network", "none", "--restart", "always", "--volumes-from", donor, "convgpu/demo", "sleep", "9"
    )
    assert raw.post(f"/containers/{made}/start").denied
    guarded.end()
    guarded.start()
    guarded.wait_for_plugin(plugin)
    assert guarded.inspect("container", made, "{{.State.Status}} {{.RestartCount}}") == "created 0"
    assert raw.post(f"/containers/{made}/start").denied
    guarded("rm", made, donor)
