"""The notes on who was permitted to have a GPU without a limit: what is lost makes nobody unpermitted."""

import json
import os

import pytest

from convgpu.authz.facts.permits import FULL, Permits


@pytest.fixture
def path(tmp_path):
    return tmp_path / "permits.json"


def at(now):
    return lambda: now


def told(permits):
    return permits.since, [name for name in ("a", "b") if name in permits]


def test_notes_survive_a_restart(path):
    first = Permits(path, at(100.0))
    first.note("a", permitted=True)
    first.note("b", permitted=True)
    first.note("b", permitted=False)
    assert told(first) == told(Permits(path, at(200.0))) == (100.0, ["a"])


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"ids": ["a"]}', '{"since": "x", "ids": []}', '{"since": 1}'])
def test_lost_notes_begin_anew(path, text):
    Permits(path, at(100.0)).note("a", permitted=True)
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert told(Permits(path, at(200.0))) == (200.0, [])
    assert told(Permits(path, at(300.0))) == (200.0, [])


def test_what_cannot_be_written_is_not_believed_after_a_restart(path, monkeypatch, caplog):
    def fail(_descriptor):
        raise OSError("the disk is full")

    permits = Permits(path, at(100.0))
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        permits.note("a", permitted=True)
    assert told(permits) == (100.0, ["a"])
    assert told(Permits(path, at(200.0))) == (200.0, [])
    assert "the disk is full" in caplog.text


def test_without_a_permit_that_could_be_noted_nobody_is_unpermitted(path):
    now = [100.0]
    permits = Permits(path, lambda: now[0])
    now[0] = 200.0
    permits.begin_anew()
    assert told(permits) == told(Permits(path, at(300.0))) == (200.0, [])


def test_containers_that_are_gone_are_forgotten(path):
    permits = Permits(path, at(100.0))
    for number in range(FULL):
        assert not permits.is_full
        permits.note(str(number), permitted=True)
    assert permits.is_full
    permits.keep_only({"7": "running", "new": "created"})
    assert json.loads(path.read_text()) == {"since": 100.0, "ids": ["7"]}
