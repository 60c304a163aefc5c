"""`convgpu simulate`, as a user types it."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from convgpu.cli.__main__ import main
from convgpu.cli.cluster.simulate import shrunk

TRACE = "name,submitted,duration,cards,memory\na,0,10,1,0.5\nb,0,10,1,0.5\nc,5,10,1,1\n"


def simulate(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, words)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_the_figures_of_each_policy_as_data(trace: Path) -> None:
    result = simulate(trace, "--nodes", "1x1", "--policy", "exclusive-first-come", "--json")
    answer = json.loads(result.stdout)
    figures = answer["policies"]["exclusive-first-come"]
    assert (result.exit_code, answer["nodes"], figures["jobs"]) == (0, [1], 3)
    assert (figures["makespan"], figures["completion"]) == (30, pytest.approx(55 / 3))


def test_a_table_has_a_line_for_each_policy(trace: Path) -> None:
    packed = trace.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(TRACE.encode()))
    lines = simulate(packed, "--nodes", "1x2+1x1").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "POLICY",
        "exclusive-first-come",
        "exclusive-least-attained",
        "shared-first-come",
        "shared-least-attained",
        "shared-shortest",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no trace has these columns"),
        ("a,b\n1,2\n", "no trace has these columns: a, b"),
        ("submitted,duration\n", "has no job"),
        ("submitted,duration\n0,10\nx,1\n", "line 3: could not convert"),
        ("submitted,duration,memory\n0,10,7\n", "line 2: job 0: memory is a share"),
        ("submitted,duration,cards\n0,10,5\n", "job 0 asks for 5 of 2 cards; --nodes 1x2"),
    ],
)
def test_a_trace_that_makes_no_sense_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    result = simulate(path, "--nodes", "1x2")
    assert (result.exit_code, message in result.output) == (1, True), result.output


@pytest.mark.parametrize("nodes", ["8", "x4", "0x4", "2x0", "2x4+", "-1x2"])
def test_nodes_that_make_no_sense_are_refused(trace: Path, nodes: str) -> None:
    result = simulate(trace, f"--nodes={nodes}")
    assert (result.exit_code, "is not NODESxCARDS" in result.output) == (2, True), result.output


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(TRACE.encode())[:20])
    assert simulate(path).exit_code == 1


def test_a_report_has_a_plot_of_each_kind(trace: Path, tmp_path: Path) -> None:
    result = simulate(trace, "--nodes", "1x2", "--policy", "shared-first-come", "--report", tmp_path / "out.html")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "out.html").read_text()
    assert [title in text for title in ("Completion times", "Cards needed", "Memory in use")] == [True] * 3
    refused = simulate(trace, "--nodes", "1x2", "--report", tmp_path / "no/out.html")
    assert "No such file or directory" in refused.output


def test_a_smaller_cluster_has_fewer_nodes_or_fewer_cards_on_each() -> None:
    assert shrunk([4] * 8, 0.5) == [4] * 4
    assert shrunk([8, 4], 0.5) == [4, 2]
    assert shrunk([1], 0.5) == [1]
