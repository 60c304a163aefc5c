"""The state file of version 0.1 becomes a database."""

import json
import logging
from pathlib import Path

import pytest
from opened_store import opened

from convgpu.daemon.migration import migrate


def test_a_state_of_version_0_1_is_taken_over_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    old = [
        {"name": "a", "options": {"memory": "2g"}, "created": 5.0, "mounts": {"x": 2}, "ended": False},
        {"name": "b", "options": {}, "created": 6.0, "mounts": {}, "ended": True},
    ]
    (tmp_path / "state.json").write_text(json.dumps(old))
    (tmp_path / "foreign.json").write_text("{}")
    for _ in range(2):
        with opened(tmp_path) as store:
            migrate(tmp_path, store)
            a, b = store.volumes()
            assert (a.name, a.options, a.state, a.mounts["x"].count) == ("a", {"memory": "2g"}, "running", 2)
            assert (b.name, b.state, b.mounts) == ("b", "ended", {})
            assert not store.complete
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state.db", "state.json.migrated"]
    assert caplog.text.count("are in the database now") == 1


@pytest.mark.parametrize("content", [b"", b"[{", b"\xff", b'[{"name": "../x", "options": {}, "created": 1}]'])
def test_a_damaged_state_of_version_0_1_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    with opened(tmp_path) as store:
        migrate(tmp_path, store)
        assert store.volumes() == []
    assert (tmp_path / "state.damaged").read_bytes() == content
