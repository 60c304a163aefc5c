"""The plugin's manifest, the settings' table of docs/architecture.md and the code say the same."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from convgpu.plugin.settings import Settings
from convgpu.policies.eviction import EVICTION_POLICIES
from convgpu.policies.memory import POLICIES
from convgpu.policies.placement import PLACEMENT_POLICIES

ROOT = Path(__file__).parents[2]
CONFIG = json.loads((ROOT / "config.json").read_text())
# These follow from the manifest itself and from the root file system; nobody could set them to anything else.
NOT_SETTABLE = {
    "CONVGPU_DIRECTORY",
    "CONVGPU_HOST_ROOT",
    "CONVGPU_LIBRARIES",
    "CONVGPU_PORTER",
    "CONVGPU_SIMULATED_DRIVER",
    "CONVGPU_SOCKET",
}


def documented() -> dict[str, str]:
    text = (ROOT / "docs/architecture.md").read_text()
    return dict(re.findall(r"^- `(CONVGPU_\w+)` \(default `([^`]*)`\): ", text, re.MULTILINE))


def test_each_documented_setting_is_settable_with_its_default():
    settable = {entry["name"]: entry["value"] for entry in CONFIG["env"] if entry.get("settable") == ["value"]}
    assert settable == {name: value for name, value in documented().items() if name not in NOT_SETTABLE}


def test_paths_are_those_of_the_code():
    defaults = Settings()
    assert CONFIG["propagatedMount"] == str(defaults.directory) == documented()["CONVGPU_DIRECTORY"]
    assert CONFIG["interface"]["socket"] == defaults.socket.name
    assert CONFIG["interface"]["types"] == ["docker.volumedriver/1.0", "docker.authz/1.0"]


def test_the_image_puts_files_where_the_code_looks():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"COPY --from=hook /out {documented()['CONVGPU_LIBRARIES']}\n" in dockerfile
    assert documented()["CONVGPU_SIMULATED_DRIVER"] == documented()["CONVGPU_LIBRARIES"] + "/simulated"
    assert CONFIG["entrypoint"][0] == "/opt/convgpu/bin/python"
    assert "COPY --from=wheel /opt/convgpu /opt/convgpu\n" in dockerfile


@pytest.mark.parametrize(
    ("setting", "policies"),
    [
        ("CONVGPU_POLICY", POLICIES),
        ("CONVGPU_PLACEMENT", PLACEMENT_POLICIES),
        ("CONVGPU_EVICTION", EVICTION_POLICIES),
    ],
)
def test_settings_and_reference_name_all_policies(setting: str, policies: Mapping[str, object]) -> None:
    [entry] = [entry for entry in CONFIG["env"] if entry["name"] == setting]
    reference = (ROOT / "docs/reference.md").read_text()
    [row] = [line for line in reference.splitlines() if line.startswith(f"| `{setting}`")]
    for name in policies:
        assert name in entry["description"], setting
        assert name in row, setting
