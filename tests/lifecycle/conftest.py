"""Engines, a registry and plugins for the tests; nothing of the host's Engine changes."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bypass_services import RESOURCES
from docker_engine import Engine, Holder, stop, wait_for
from prepared_data import pushed_images

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def engine(start_engine: Callable[..., AbstractContextManager[Engine]]) -> Iterator[Engine]:
    with start_engine() as started:
        yield started


@pytest.fixture(scope="session")
def registry_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the registry keeps what is pushed to it."""
    folder = tmp_path_factory.mktemp("registry") / "data"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def registry(registry_folder: Path) -> Iterator[str]:
    """Debian's docker-registry on loopback, plain HTTP; the value is its HOST:PORT."""
    directory = registry_folder.parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(registry_folder)}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    # JSON is YAML.
    (directory / "config.yml").write_text(json.dumps(settings))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "docker-registry", "serve", str(directory / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def listens() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for("the registry listens", listens)
        yield f"localhost:{port}"
    finally:
        stop(process)


def push(engine: Engine, reference: str) -> subprocess.CompletedProcess[str]:
    """Push the plugin to a registry, as `make release` does."""
    environment = {**os.environ, "DOCKER_HOST": engine.host}
    return subprocess.run(
        [ROOT / "scripts/release/plugin-image", reference],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


@pytest.fixture
def push_plugin() -> Callable[[Engine, str], subprocess.CompletedProcess[str]]:
    """A pusher of the plugin, which may fail."""
    return push


@pytest.fixture(scope="session")
def images(engine: Engine, registry: str, registry_folder: Path) -> list[str]:
    """Two versions of the plugin in the registry, pushed as `make release` does."""
    references = [f"{registry}/convgpu:{version}" for version in ("0.1.0", "0.2.0")]

    def push_all() -> None:
        for reference in references:
            done = push(engine, reference)
            assert done.returncode == 0, done.stderr

    pushed_images(registry_folder, push_all)
    return references


@pytest.fixture(scope="session")
def plugin(engine: Engine) -> Iterator[str]:
    """The plugin `convgpu`, enabled, with one simulated device of 16 GiB."""
    engine("plugin", "set", "convgpu", *engine.settings_of_plugins())
    engine("plugin", "enable", "convgpu")
    yield "convgpu"
    engine("plugin", "disable", "-f", "convgpu")
    engine("plugin", "rm", "convgpu")


@pytest.fixture(scope="session")
def runtimes() -> dict[str, dict[str, str]]:
    """Settings of the Engine: `runc` under names that could give a GPU."""
    runc = {"path": shutil.which("runc") or "/usr/sbin/runc"}
    return {"nvidia": runc, "other": runc}


@pytest.fixture(scope="module")
def swarm(engine: Engine, plugin: str) -> Iterator[Engine]:
    """The Engine as a manager with generic resources, which it only reads when it starts."""

    def start(resources: list[str]) -> None:
        engine.configure({"node-generic-resources": resources})
        engine.end()
        engine.start()
        engine.wait_for_plugin(plugin)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start(RESOURCES)
    engine("swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", f"127.0.0.1:{port}")
    yield engine
    engine("swarm", "leave", "-f")
    start([])


@pytest.fixture
def tidy(engine: Engine, plugin: str) -> Iterator[None]:
    """The plugin removes within seconds the volumes that outlived the container for which they were made."""

    def keep(duration: str) -> None:
        engine("plugin", "disable", "-f", plugin)
        engine("plugin", "set", plugin, f"CONVGPU_KEEP={duration}")
        engine("plugin", "enable", plugin)
        engine.wait_for_plugin(plugin)

    keep("5s")
    yield
    keep("1h")


@pytest.fixture
def hold(engine: Engine) -> Iterator[Callable[..., Holder]]:
    """Return a starter of holders; they are gone after the test."""
    started: list[Holder] = []

    def start(plugin: str, memory: str, *sizes: str, options: Sequence[str] = ()) -> Holder:
        started.append(Holder(engine, plugin, memory, *sizes, options=options))
        return started[-1]

    yield start
    for holder in started:
        if engine.run("container", "inspect", holder.id, check=False).returncode == 0:
            holder.remove()
