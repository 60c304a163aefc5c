"""The Engine, from answers recorded on Docker 20.10.24."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, DockerException, NotFound

from convgpu.cli.engine import Engine, EngineContainer, Image, Plugin
from convgpu.cli.errors import Unavailable

PLUGIN: dict[str, Any] = {
    "Id": "f00d",
    "Enabled": True,
    "Config": {"Interface": {"Socket": "convgpu.sock", "Types": ["docker.volumedriver/1.0"]}},
    "Settings": {"Env": ["CONVGPU_DEVICES=simulated:16GiB", "CONVGPU_POLICY="]},
}
TRAIN: dict[str, Any] = {
    "Id": "c" * 64,
    "Names": ["/other/alias", "/train"],
    "Image": "pytorch:2",
    "Mounts": [
        {"Type": "bind", "Source": "/data", "Destination": "/data"},
        {"Type": "volume", "Name": "v1", "Driver": "convgpu:latest", "Destination": "/run/convgpu"},
    ],
}
PLAIN: dict[str, Any] = {"Id": "d" * 64, "Names": None, "Image": "debian", "Mounts": None}


def raising(error: Exception) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def engine(**client: Any) -> Engine:
    return Engine(SimpleNamespace(**client))  # type: ignore[arg-type]


def with_plugin(attributes: dict[str, Any]) -> Engine:
    return engine(plugins=SimpleNamespace(get=lambda _: SimpleNamespace(attrs=attributes)))


def test_the_plugins_socket_and_settings_come_from_the_engine() -> None:
    assert with_plugin(PLUGIN).plugin("convgpu") == Plugin(
        "convgpu",
        Path("/run/docker/plugins/f00d/convgpu.sock"),
        {"CONVGPU_DEVICES": "simulated:16GiB", "CONVGPU_POLICY": ""},
    )


def test_a_disabled_plugin_is_to_be_enabled() -> None:
    with pytest.raises(Unavailable, match=r"(?s)'lab' is disabled.*docker plugin enable lab"):
        with_plugin({**PLUGIN, "Enabled": False}).plugin("lab")


def test_an_absent_plugin_is_to_be_installed() -> None:
    absent = engine(plugins=SimpleNamespace(get=raising(NotFound("plugin not found"))))
    with pytest.raises(Unavailable, match=r"(?s)no plugin 'lab'.*docker plugin install lab"):
        absent.plugin("lab")


def test_containers_are_found_by_their_volumes() -> None:
    listing = engine(api=SimpleNamespace(containers=lambda **which: [TRAIN, PLAIN] if which["all"] else []))
    assert listing.containers() == {"v1": (EngineContainer("c" * 64, "train", "pytorch:2"),)}


def with_image(config: dict[str, Any], archive: Any) -> tuple[Engine, list[str]]:
    removed: list[str] = []
    containers = SimpleNamespace(get=lambda name: SimpleNamespace(remove=lambda **_: removed.append(name)))
    images = SimpleNamespace(get=lambda _: SimpleNamespace(attrs={"Config": config}))
    api = SimpleNamespace(create_container=lambda *_, **__: {"Id": "probe"}, get_archive=archive)
    return engine(images=images, api=api, containers=containers), removed


def test_an_image_tells_its_environment_and_volumes() -> None:
    free = raising(NotFound("no such file"))
    rich, removed = with_image({"Env": ["A=1"], "Volumes": {"/data": {}}}, free)
    assert rich.image("i") == Image(("A=1",), ("/data",))
    assert not rich.image_has("i", "/run/convgpu")
    assert removed == ["probe"]
    empty, _ = with_image({"Env": None, "Volumes": None}, free)
    assert empty.image("i") == Image((), ())
    absent = engine(images=SimpleNamespace(get=raising(NotFound("no such image"))))
    assert absent.image("i") is None


def test_an_image_with_files_at_the_path_is_known_and_the_probe_is_removed() -> None:
    full, removed = with_image({}, lambda _, path: (io.BytesIO(path.encode()), {}))
    assert full.image_has("i", "/run/convgpu")
    assert removed == ["probe"]


def test_a_refusal_of_the_engine_is_shown_as_it_is() -> None:
    refusal = APIError("403 Client Error", explanation="authorization denied by plugin lab")
    refusing = engine(api=SimpleNamespace(containers=raising(refusal)))
    with pytest.raises(Unavailable, match="the Docker Engine refused: authorization denied by plugin lab"):
        refusing.containers()


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (PermissionError(13, "Permission denied"), "(?s)no permission.*as root"),
        (FileNotFoundError(2, "No such file or directory"), "(?s)does not answer.*systemctl start docker"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_explained(
    monkeypatch: pytest.MonkeyPatch, cause: OSError, message: str
) -> None:
    error = DockerException("Error while fetching server API version")
    error.__cause__ = cause
    monkeypatch.setattr("docker.from_env", raising(error))
    with pytest.raises(Unavailable, match=message):
        Engine.connect()


def test_removing_takes_the_volumes_along_and_passes_over_what_is_gone() -> None:
    removed: list[tuple[str, bool, bool]] = []

    def get(name: str) -> Any:
        if name == "gone":
            raise NotFound("gone")
        return SimpleNamespace(remove=lambda *, force, v: removed.append((name, force, v)))

    engine(containers=SimpleNamespace(get=get)).remove_containers(["a", "gone", "b"])
    assert removed == [("a", True, True), ("b", True, True)]
