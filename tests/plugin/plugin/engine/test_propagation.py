"""What the plugin mounts reaches the Engine, or the plugin asks for a restart, once."""

import os
from pathlib import Path

import pytest

from convgpu.plugin.engine.propagation import is_cut_off, needs_restart

PLACE = Path("/var/lib/convgpu")
OWN = """\
302 61 254:0 /plugins/b7/rootfs / rw,relatime - ext4 /dev/vda rw
434 302 254:0 /plugins/b7/propagated-mount /var/lib/convgpu rw,relatime {} - ext4 /dev/vda rw
74 434 254:0 /plugins/b7/propagated-mount/containers /var/lib/convgpu/volumes ro,relatime shared:69 - ext4 /dev/vda rw
"""
PEER = "52 29 254:0 /plugins/b7/propagated-mount /plugins/b7/propagated-mount rw shared:69 - ext4 /dev/vda rw\n"
OTHER = "43 42 254:0 /plugins/a1/propagated-mount /plugins/a1/propagated-mount rw shared:6 - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("optional", "engine", "expected"),
    [
        ("shared:69", OTHER + PEER, False),
        ("shared:69", OTHER, True),
        ("shared:69", "", True),
        ("shared:69 master:3", OTHER, True),
        ("", OTHER, False),  # nothing is shared: not in an Engine
    ],
)
def test_a_shared_mount_without_a_peer_is_cut_off(optional: str, engine: str, expected: bool) -> None:
    assert is_cut_off(PLACE, OWN.format(optional), engine) is expected


def test_a_folder_that_is_no_mount_is_not_cut_off() -> None:
    assert not is_cut_off(Path("/elsewhere"), OWN.format("shared:69"), OTHER)


def test_one_restart_is_asked_for_and_another_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgpu.plugin.engine.propagation.is_cut_off", lambda *_: True)
    asked = [needs_restart(tmp_path, now) for now in (1000.0, 1001.0, 1059.0, 1061.0, 1062.0)]
    assert asked == [True, False, False, True, False]


def test_a_parent_that_cannot_be_read_asks_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)  # of the first process in a PID namespace
    assert not needs_restart(tmp_path)
