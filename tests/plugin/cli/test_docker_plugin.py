"""What Docker's command line calls us with, and where `convgpu install` links us."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemon import running_daemon

from convgpu.cli.__main__ import COMMANDS, main
from convgpu.cli.completion import complete
from convgpu.cli.docker_plugin import split
from convgpu.cli.setup.docker_script import script

CONVGPU = Path(sys.executable).parent / "convgpu"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["convgpu", "ps"], ("run", [], ["ps"])),
        (
            ["-H", "convgpu", "--tls", "convgpu", "run", "convgpu"],
            ("run", ["-H", "convgpu", "--tls"], ["run", "convgpu"]),
        ),
        (["--context=lab", "convgpu"], ("run", ["--context=lab"], [])),
        (["help", "convgpu", "ps"], ("help", [], ["ps"])),
        (["__complete", "--host", "x", "convgpu", "ps", ""], ("__complete", ["--host", "x"], ["ps", ""])),
        (["__completeNoDesc", "convgpu", ""], ("__complete", [], [""])),
    ],
)
def test_the_words_of_docker_are_taken_apart(words: list[str], expected: tuple[str, list[str], list[str]]) -> None:
    assert split(words) == expected


@pytest.fixture(params=["script", "link of an earlier version"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "docker-convgpu"
    if request.param == "script":
        file.write_text(script(str(CONVGPU)))
        file.chmod(0o755)
    else:
        file.symlink_to(CONVGPU)
    return file


def test_docker_learns_what_it_wants_to_know(plugin: Path) -> None:
    done = subprocess.run([plugin, "docker-cli-plugin-metadata"], check=True, capture_output=True, text=True)
    data = json.loads(done.stdout)
    assert {"SchemaVersion": "0.1.0", "Vendor": "ConvGPU"}.items() <= data.items()
    assert data["ShortDescription"]
    assert data["Version"]


@pytest.mark.parametrize("words", [["convgpu", "ps", "--help"], ["help", "convgpu", "ps"]])
def test_help_names_docker(plugin: Path, words: list[str]) -> None:
    done = subprocess.run([plugin, *words], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("Usage: docker convgpu ps [OPTIONS]")


def test_a_failure_keeps_its_exit_code(plugin: Path) -> None:
    words = ["--host", "unix:///nowhere", "convgpu", "ps"]
    done = subprocess.run([plugin, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: the Docker Engine at unix:///nowhere does not answer")


def test_completion_has_the_form_of_cobra() -> None:
    assert complete(main, [], "po") == ["policy\tshow or choose who of the waiting is next", ":4"]
    assert complete(main, ["-H", "unix:///nowhere", "inspect"], "") == [":4"]
    assert complete(main, [], "")[:-1] == [
        f"{name}\t{text}" for section in COMMANDS.values() for name, (_, text) in section.items()
    ]


def test_completion_of_run_has_docker_s_options_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def docker(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, "--gpus\tGPU devices\n--group-add\tAdd groups\n:4\n")

    monkeypatch.setattr(subprocess, "run", docker)
    lines = complete(main, ["run", "--gpu-memory", "2g", "--rm"], "--g")
    assert asked == [["docker", "__complete", "run", "--rm", "--g"]]
    assert [line.partition("\t")[0] for line in lines] == [
        *("--gpus", "--gpu-wait", "--gang", "--gpu-volume-driver"),
        *("--group-add", ":4"),
    ]


def install(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["install", *words], env={"DOCKER_CONFIG": str(folder)}, prog_name="convgpu")


def test_install_links_and_undoes_it(tmp_path: Path) -> None:
    link = tmp_path / "cli-plugins/docker-convgpu"
    for _ in range(2):  # again is no error
        assert install(tmp_path).exit_code == 0
        assert link.read_text() == script(str(CONVGPU))
        assert link.stat().st_mode & 0o777 == 0o755
    assert install(tmp_path, "--uninstall").stdout == f"Removed {link}\n"
    assert list(link.parent.iterdir()) == []
    assert install(tmp_path, "--uninstall").stdout == f"There is no {link}: nothing to remove.\n"


def test_install_replaces_the_link_of_an_earlier_version(tmp_path: Path) -> None:
    link = tmp_path / "cli-plugins/docker-convgpu"
    link.parent.mkdir()
    link.symlink_to("/somewhere/bin/convgpu")
    assert install(tmp_path).exit_code == 0
    assert not link.is_symlink()


def test_a_script_whose_program_is_gone_says_so(tmp_path: Path) -> None:
    file = tmp_path / "docker-convgpu"
    file.write_text(script(f"{tmp_path}/it's gone"))
    file.chmod(0o755)
    done = subprocess.run([file, "docker-cli-plugin-metadata"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == f"{tmp_path}/it's gone: not there any more; convgpu install docker\n"


def test_install_leaves_alone_what_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "cli-plugins").mkdir()
    (tmp_path / "cli-plugins/docker-convgpu").write_text("mine")
    for words in ([], ["--uninstall"]):
        result = install(tmp_path, *words)
        assert (result.exit_code, "is not what convgpu install makes" in result.stderr) == (1, True)
    assert (tmp_path / "cli-plugins/docker-convgpu").read_text() == "mine"


def test_what_the_scheduler_has_is_completed(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "d") as daemon:
        daemon.container("first", memory="2g")
        there = ["--directory", str(daemon.directory)]
        assert complete(main, ["inspect", *there], "f") == ["first\trunning", ":4"]
        assert complete(main, ["drain", *there], "") == ["0\tSimulated GPU", ":4"]
        assert [line[:4] for line in complete(main, ["drain", *there], "GPU")] == ["GPU-", ":4"]
        assert complete(main, ["policy", *there, "use"], "r") == ["random", "recent-use", ":4"]
    assert complete(main, ["policy", *there, "use"], "") == [":4"]
