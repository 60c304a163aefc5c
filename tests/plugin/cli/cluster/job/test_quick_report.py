"""The most that a job had of a card, as the Epilog asks for it; what takes more is left to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_engine import answering_engine

from convgpu.cli.cluster.job import quick_report
from convgpu.cli.connect import engine_documents

PLUGIN = {
    "Enabled": True,
    "Id": "f00d",
    "Config": {"Interface": {"Socket": "convgpu.sock"}},
    "Settings": {"Env": []},
}
CONTAINERS = [
    {"name": "a", "engine": {"id": "1"}, "devices": [{"peak": 5}, {"peak": 7}]},
    {"name": "b", "engine": {"id": "2"}, "devices": [{"peak": 9}]},
    {"name": "c", "engine": {"id": "3"}, "devices": []},
]
STOPPED = "/v1/history?kinds=stopped"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the Engine and the plugin answer; the plugin's socket lies where the Engine says."""
    monkeypatch.setattr(engine_documents, "_SOCKETS", str(tmp_path))
    (tmp_path / "f00d").mkdir()
    documents: dict[str, Any] = {
        "/plugins/convgpu/json": PLUGIN,
        "/v1/containers": {"containers": CONTAINERS},
        STOPPED: {"events": [{"kind": "stopped", "container": "b"}, {"kind": "stopped", "container": None}]},
    }
    with (
        answering_engine(tmp_path / "engine.sock", documents),
        answering_engine(tmp_path / "f00d/convgpu.sock", documents),
    ):
        yield documents


def peak(folder: Path, *names: str) -> int | None:
    return quick_report.peak(f"unix://{folder}/engine.sock", "convgpu", names)


@pytest.mark.usefixtures("answers")
def test_the_largest_of_all_cards_of_the_jobs_containers(tmp_path: Path) -> None:
    assert [peak(tmp_path, *names) for names in (("1",), ("1", "3"), ("3",), ("4",))] == [7, 7, 0, 0]


@pytest.mark.usefixtures("answers")
def test_a_container_that_was_stopped_is_left_to_the_whole_report(tmp_path: Path) -> None:
    assert peak(tmp_path, "1", "2") is None


def test_a_container_without_a_name_in_the_engine_is_left_to_it(answers: dict[str, Any], tmp_path: Path) -> None:
    answers["/v1/containers"] = {"containers": [*CONTAINERS, {"name": "d", "engine": None, "devices": []}]}
    assert peak(tmp_path, "1") is None


def test_another_way_to_the_engine_and_a_plugin_that_is_off_are_left_to_it(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    answers["/plugins/convgpu/json"] = {**PLUGIN, "Enabled": False}
    assert (peak(tmp_path, "1"), quick_report.peak("tcp://127.0.0.1:1", "convgpu", ("1",))) == (None, None)


def test_no_answer_is_an_error(answers: dict[str, Any], tmp_path: Path) -> None:
    del answers["/v1/containers"]
    with pytest.raises(ValueError, match="/v1/containers: the answer is 404"):
        peak(tmp_path, "1")
