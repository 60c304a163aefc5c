"""`convgpu set` of a container on a scheduler that runs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon import running_daemon

from convgpu.cli.__main__ import main


def test_limit_pause_and_priority_are_changed_together_and_told(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.container("a", memory="2g")

        def change(*words: str) -> Result:
            return CliRunner().invoke(main, ["set", "a", *words, "--directory", str(daemon.directory)])

        done = change("4g", "--wait", "5m", "--priority", "-5")
        assert done.output.splitlines() == [
            "a: limit 4GiB on GPU 0",
            "a: its allocations are paused 5m at most",
            "a: priority -5",
        ]
        assert change("--wait", "forever").output == "a: its allocations are paused without an end\n"
        answer = json.loads(change("--priority", "7", "--json").output)
        assert answer == {"devices": [], "wait": None, "priority": 7}
        kinds = [(event["kind"], event.get("reason")) for event in daemon.events("limited", "changed")]
        assert kinds == [
            ("limited", None),
            ("changed", "wait=5m, priority=-5"),
            ("changed", "wait=forever"),
            ("changed", "priority=7"),
        ]
        done = change("--priority", "101")
        assert (done.exit_code, "give a whole number from -100 to 100" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "say what to change: convgpu set a LIMIT, --wait 5m or --priority 10"),
        (("--wait", "soon"), "'soon' is not a duration: write it as 500ms, 30s, 5m, 2h or 1d, or forever"),
        (("--priority", "high"), "'high' is not a priority: write a whole number"),
    ],
)
def test_what_cannot_be_changed_is_said_before_anybody_is_asked(words: tuple[str, ...], text: str) -> None:
    done = CliRunner().invoke(main, ["set", "a", *words], env={"DOCKER_HOST": "unix:///nowhere"})
    assert (done.exit_code, text in " ".join(done.output.split())) == (2, True)
