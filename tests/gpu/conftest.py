"""The plugin that tests/gpu/run created, the card, and containers; without tests/gpu/run all of it is left out."""

import json
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from card import Card
from containers import GIB, NAME, SIMULATED, Container, Start, docker, run_options
from plugin_api import PluginApi


def pytest_runtest_setup() -> None:
    if "CONVGPU_ON_CARD" not in os.environ:
        pytest.skip("needs a card and an Engine of its own: tests/gpu/run runs it")


@pytest.fixture(scope="session")
def plugin_id() -> str:
    return docker("plugin", "inspect", "-f", "{{.Id}}", NAME).stdout.strip()


@pytest.fixture(scope="session")
def plugin(plugin_id: str) -> PluginApi:
    return PluginApi(Path(f"/run/docker/plugins/{plugin_id}/convgpu.sock"))


@pytest.fixture(scope="session")
def card(plugin: PluginApi, plugin_id: str) -> Card:
    plugin.get("devices")  # answered when the scheduler is there, and with it the simulated driver
    if not SIMULATED:
        return Card(None)
    root = docker("info", "-f", "{{.DockerRootDir}}").stdout.strip()
    return Card(f"{root}/plugins/{plugin_id}/propagated-mount/driver/libnvidia-ml.so.1")


@pytest.fixture(scope="session")
def figures(card: Card) -> Iterator[dict[str, object]]:
    """What was measured; written to CONVGPU_FIGURES at the end."""
    found: dict[str, object] = {"host": card.describe()}
    yield found
    file = Path(os.environ["CONVGPU_FIGURES"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=2) + "\n")


@pytest.fixture(scope="session")
def through() -> str:
    """What the programs allocate through."""
    return "driver" if SIMULATED else "torch"


@pytest.fixture(scope="session")
def libraries() -> str:
    """LD_LIBRARY_PATH of the containers."""
    return "/run/convgpu/driver" if SIMULATED else os.environ.get("LD_LIBRARY_PATH", "")


@pytest.fixture(scope="session")
def share(card: Card) -> int:
    """Blocks of 1 GiB that each of two containers takes: too many for both at once. 100 on an H200."""
    return card.total * 5 // 7 // GIB


@pytest.fixture
def start(libraries: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start `program` of tests/gpu/programs with a limit; all containers are removed after the test.

    One without a suffix is what tests/gpu/run compiled. On a host with several cards it gets the first, unless it says
    otherwise: the tests look there.
    """
    started: list[Container] = []

    def begin(letter: str, memory: str, program: str, *words: object, **options: str) -> Container:
        interpreted = ["python3", f"/programs/{program}"]
        command = [*(interpreted if "." in program else [f"/compiled/{program}"]), *map(str, words)]
        volume = options.get("volume", "")
        if ":" not in memory and "gpus=" not in volume:
            options["volume"] = f"{volume} gpus=0"
        settings = run_options(NAME, memory, options.pop("libraries", libraries), **options)
        container = Container(f"convgpu-card-{letter}", settings, command)
        started.append(container)
        return container

    yield begin
    failed = getattr(request.node, "failed", False)
    for container in started:
        if failed:
            print(f"--- {container.name}\n{container.output()}")
        container.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let `start` know whether its test failed."""
    report = yield
    if report.when == "call":
        item.failed = report.failed
    return report
