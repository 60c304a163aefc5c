"""An Engine and a plugin for the ways in, whose containers get the simulated driver as users of the demo do."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from docker_engine import Engine, version

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = Path(sys.executable).parent  # ours


@pytest.fixture(scope="session")
def cdi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the Engine looks for CDI devices, if it does."""
    return tmp_path_factory.mktemp("cdi")


@pytest.fixture(scope="session")
def engine(start_engine: Callable[..., AbstractContextManager[Engine]], cdi_folder: Path) -> Iterator[Engine]:
    settings = {"cdi-spec-dirs": [str(cdi_folder)], "features": {"cdi": True}} if version() >= (25, 0) else {}
    with start_engine(settings=settings) as started:
        yield started


@pytest.fixture(scope="session")
def plugin(engine: Engine) -> Iterator[str]:
    engine("plugin", "set", "convgpu", "CONVGPU_DEVICES=simulated:16GiB", f"run.source={engine.directory}")
    engine("plugin", "enable", "convgpu")
    yield "convgpu"
    engine("plugin", "disable", "-f", "convgpu")
    engine("plugin", "rm", "-f", "convgpu")


@pytest.fixture(autouse=True)
def clean(engine: Engine) -> Iterator[None]:
    """No test leaves a container to the next one."""
    yield
    left = engine("ps", "-a", "-q").split()
    if left:
        engine("rm", "-f", "-v", *left)


@pytest.fixture(scope="session")
def compose(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`docker compose` 2 on the Engine, with words; returns what it printed."""
    found = subprocess.run([ROOT / "scripts/install/compose"], check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    folder = tmp_path_factory.mktemp("docker")
    (folder / "cli-plugins").mkdir()
    (folder / "cli-plugins/docker-compose").symlink_to(Path(found.stdout.strip()) / "docker-compose")

    def run(*words: str) -> str:
        environment = {**os.environ, "DOCKER_CONFIG": str(folder), "DOCKER_HOST": engine.host}
        command = ["docker", "compose", *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, cwd=EXAMPLES / "compose", timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def runtime(engine: Engine, plugin: str) -> tuple[str, ...]:
    """The Engine has our runtime, with a limit for those that name none."""
    words = ["--convgpu-memory=3g", f"--convgpu-directory={engine.directory_of(plugin)}"]
    engine.configure({"runtimes": {"convgpu": {"path": str(PROGRAMS / "convgpu-runtime"), "runtimeArgs": words}}})
    return ("--runtime", "convgpu", "--network", "none")
