"""Where our runtime is the Engine's default: what may get a GPU gets no other one, whatever else it asks for."""

import pytest
from engine_says import GPU, HOOK

LINK = {"Devices": [{"PathOnHost": "/srv/link", "PathInContainer": "/dev/x"}]}
NAMED = {"Binds": ["mine:/run/convgpu"], "VolumeDriver": "convgpu"}
WITH_OPTIONS = {"Name": "convgpu", "Options": {"memory": "2g"}}
MOUNT = {"Type": "volume", "Target": "/run/convgpu", "VolumeOptions": {"DriverConfig": WITH_OPTIONS}}


@pytest.fixture
def judged(harness):
    def rule(host, runtime):
        host = {**host, "Runtime": runtime}
        return harness.judge({"Image": "i", "HostConfig": host, "Env": ["CONVGPU_MEMORY=2g", HOOK]}).rule

    return rule


@pytest.mark.parametrize("runtime", ["runc", "crun", "io.containerd.runc.v2", "kata-fc", "nvidia", "convgpu2"])
@pytest.mark.parametrize(
    "host",
    [
        LINK,
        {**LINK, "AutoRemove": True},
        {**LINK, "Binds": ["/srv/x:/x:ro"]},
        {"DeviceCgroupRules": ["c 10:* rwm"]},
        {**GPU, **NAMED},
        {**LINK, **NAMED},
        {**GPU, "Mounts": [MOUNT], "RestartPolicy": {"Name": "always"}},
    ],
)
def test_another_runtime_is_refused(harness, judged, host, runtime):
    assert judged(host, runtime) in {"no-gpu", "limited"}
    assert judged(host, "") in {"no-gpu", "limited"}
    harness.engine.runtime = "convgpu"
    assert judged(host, runtime) == "runtime"
    assert judged(host, "convgpu") in {"no-gpu", "limited"}
    harness.engine.down = True
    assert judged(host, runtime) not in {"no-gpu", "limited"}


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_a_container_that_gets_no_device_may_have_any_runtime(harness, judged, runtime):
    harness.engine.runtime = "convgpu"
    assert judged({"Memory": 1 << 30}, runtime) == "no-gpu"
