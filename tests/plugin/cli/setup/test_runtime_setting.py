"""Our runtime in daemon.json: added, taken out, everything else as it was."""

import pytest

from convgpu.cli.setup.runtime_setting import added, entry, real_runtime, removed
from convgpu.cli.terminal.errors import Refused

OURS = entry("/usr/lib/convgpu/bin/convgpu-runtime", "/var/lib/docker/plugins/x/propagated-mount", "2g")
NVIDIA = {"path": "nvidia-container-runtime", "runtimeArgs": []}
SETTINGS = {
    "empty": {},
    "other keys": {"labels": ["a=b"], "live-restore": True},
    "other runtimes": {"runtimes": {"nvidia": NVIDIA}, "data-root": "/srv"},
    "an empty list of runtimes": {"runtimes": {"nvidia": {"path": "n"}}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_added_and_removed_is_as_before(name):
    before = SETTINGS[name]
    for default in (False, True):
        now = added(before, OURS, default=default)
        assert now["runtimes"] == {**before.get("runtimes", {}), "convgpu": OURS}
        assert now.get("default-runtime") == ("convgpu" if default else None)
        assert added(now, OURS, default=default) == now
        assert removed(now) == before
    assert removed(before) == before


def test_it_stands_in_for_the_default_runtime_and_gives_way_to_it_again():
    before = {"runtimes": {"nvidia": NVIDIA}, "default-runtime": "nvidia"}
    assert real_runtime(before) == "nvidia-container-runtime"
    ours = entry("/convgpu-runtime", "/d", "8g", real_runtime(before))
    assert ours["runtimeArgs"][-1] == "--convgpu-runtime=nvidia-container-runtime"
    now = added(before, ours, default=True)
    assert now["default-runtime"] == "convgpu"
    assert real_runtime(now) == "nvidia-container-runtime"  # written again with another limit
    assert removed(now) == before
    assert added(before, OURS, default=False)["default-runtime"] == "nvidia"


def test_what_cannot_be_is_refused():
    with pytest.raises(Refused, match="not this one"):
        added({"runtimes": {"convgpu": {"path": "/opt/other"}}}, OURS, default=False)
    assert removed({"runtimes": {"convgpu": {"path": "/opt/other"}}}) == {
        "runtimes": {"convgpu": {"path": "/opt/other"}}
    }
    with pytest.raises(Refused, match="has arguments"):
        real_runtime({"runtimes": {"nvidia": {"path": "n", "runtimeArgs": ["-x"]}}, "default-runtime": "nvidia"})
    assert real_runtime({"default-runtime": "runc"}) is None
