"""The Engine's settings file: nothing of it is lost."""

import json
import os

import pytest

from convgpu.cli.setup import daemon_json
from convgpu.cli.terminal.errors import Refused, Unavailable

BROKEN = [
    b'{"runtimes": {"nvidia": {"path": "n"',
    b"[]",
    b"\xff\xfe{",
    b'{"runtimes": []}',
    b'{"runtimes": {"a": 1}}',
    b'{"authorization-plugins": "convgpu"}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_the_engine_would_not_take_is_refused_in_two_lines(tmp_path, text):
    path = tmp_path / "daemon.json"
    path.write_bytes(text)
    with pytest.raises(Refused) as caught:
        daemon_json.read(path)
    assert str(path) in caught.value.message
    assert caught.value.message.endswith(".\nMend it first; the Engine would not start with it.")
    assert path.read_bytes() == text


def test_no_file_and_an_empty_one_have_no_settings(tmp_path):
    assert daemon_json.read(tmp_path / "daemon.json") == {}
    (tmp_path / "daemon.json").write_text("\n")
    assert daemon_json.read(tmp_path / "daemon.json") == {}


def test_it_is_replaced_whole_behind_its_link_with_its_mode_and_form(tmp_path):
    real, link = tmp_path / "real/daemon.json", tmp_path / "daemon.json"
    real.parent.mkdir()
    text = '{\n\t"labels": ["größe=1"]\n}\n'
    real.write_text(text, encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to(real)
    daemon_json.write(link, {**daemon_json.read(link), "debug": True}, copy=True)
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"labels": ["größe=1"], "debug": True}
    assert '\n\t"labels"' in real.read_text(encoding="utf-8")
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in real.parent.iterdir()) == ["daemon.json", "daemon.json.before-convgpu"]
    assert (real.parent / "daemon.json.before-convgpu").read_text(encoding="utf-8") == text


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    daemon_json.write(path, {}, copy=True)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match=r"No space left.*it is as it was"):
        daemon_json.write(path, {"debug": True})
    assert path.read_text() == "{}\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["daemon.json", "daemon.json.before-convgpu"]


NVIDIA = {"runtimes": {"nvidia": {"path": "n"}}}
BEFORE = [
    None,
    b"",
    b"\n",
    b"{}",
    b'{"runtimes": {},   "debug":true}',
    b'{"default-runtime": "runc"}',
    b'{\n\t"labels": ["gr\xc3\xb6\xc3\x9fe=1"], "authorization-plugins": []\n}',
]


@pytest.mark.parametrize("before", BEFORE)
def test_without_ours_it_is_byte_for_byte_as_before(tmp_path, before):
    path = tmp_path / "daemon.json"
    daemon_json.put_back(path, before)
    settings = daemon_json.read(path)
    runtime = {"convgpu": {"path": "/usr/bin/convgpu-runtime"}}
    assert not daemon_json.has_ours(settings, "convgpu")
    first = daemon_json.with_runtimes(settings, runtime, "convgpu")
    daemon_json.write(path, first, copy=True)
    assert daemon_json.has_ours(first, "convgpu")
    both = daemon_json.with_names(first, ["convgpu:latest"])
    daemon_json.write(path, both)
    only = daemon_json.with_names(settings, ["convgpu:latest"])
    assert daemon_json.has_ours(only, "convgpu")
    assert daemon_json.write_without(path, only) is False
    assert daemon_json.read(path) == only
    assert daemon_json.write_without(path, daemon_json.with_names(settings, [])) is True
    assert daemon_json.contents(path) == before
    assert [file.name for file in tmp_path.iterdir()] == ([] if before is None else ["daemon.json"])


@pytest.mark.parametrize("copied", [None, b"{}", b"[", b"there was no such file\n"])
def test_what_somebody_changed_since_stays(tmp_path, copied):
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    daemon_json.put_back(tmp_path / "daemon.json.before-convgpu", copied)
    assert daemon_json.write_without(path, NVIDIA) is False
    assert daemon_json.read(path) == NVIDIA
    assert daemon_json.contents(tmp_path / "daemon.json.before-convgpu") == copied


def test_an_engine_that_reloads_has_to_be_told_what_is_not_there_any_more():
    assert daemon_json.explicit({"debug": True}) == {"runtimes": {}, "default-runtime": "runc", "debug": True}
    full = {"runtimes": {"nvidia": {"path": "n"}}, "default-runtime": "nvidia"}
    assert daemon_json.explicit(full) == full
