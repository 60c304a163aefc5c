"""Authorization does not affect calls that have nothing to do with GPUs."""

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import bypasses
import innocents
import pytest
from raw_engine import RawEngine

pytestmark = pytest.mark.engine

CREATES = dict(innocents.creates())
CALLS = list(innocents.calls("innocent"))


def make_devices(folder: Path) -> None:
    """Make a folder with 2,000 names, of which one is a device that is no GPU."""
    folder.mkdir()
    for number in range(1998):
        (folder / str(number)).touch()
    (folder / "link").symlink_to("/dev/zero")
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))


@pytest.fixture(scope="module")
def guarded(engine, plugin):
    raw = RawEngine(f"{engine.directory}/docker.sock")
    folder = Path(innocents.FOLDER)
    folder.mkdir(exist_ok=True)
    (folder / "file").touch()
    make_devices(folder / "devices")
    engine.configure({"authorization-plugins": [plugin]})
    plain = {"Image": innocents.IMAGE, "Cmd": ["sleep", "600"], "HostConfig": {"NetworkMode": "none"}}
    before = set(engine("volume", "ls", "-q").split())
    raw.post("/containers/create?name=innocent", plain)
    raw.post(f"/commit?container=innocent&repo={innocents.CUDA_IMAGE}&changes=ENV+{bypasses.VISIBLE}")
    assert raw.post("/containers/innocent/start").status == 204
    yield raw
    raw.remove("innocent")
    raw.remove("renamed")
    engine.configure({"authorization-plugins": []})
    engine("image", "rm", "-f", innocents.CUDA_IMAGE)
    # A container that is removed leaves the volumes that have a name.
    if left := set(engine("volume", "ls", "-q").split()) - before:
        engine("volume", "rm", *left)
    shutil.rmtree(folder)


def test_there_are_enough_requests():
    assert len(CREATES) + len(CALLS) >= 100


def test_a_gpu_in_a_large_folder_of_devices_is_refused(guarded):
    gpu = Path(innocents.FOLDER) / "devices/last"
    os.mknod(gpu, stat.S_IFCHR | 0o600, os.makedev(195, 0))
    try:
        created = guarded.post("/v1.41/containers/create", CREATES["compose large folder of devices"])
    finally:
        gpu.unlink()
    assert (created.status, "gpu-needs-limit" in created.json["message"]) == (403, True)


def absent_sources(body: dict[str, Any]) -> list[Path]:
    """Return the folders that the Engine would make for binds of this machine's, the deepest first."""
    settings = body.get("HostConfig", {})
    sources = [bind.partition(":")[0] for bind in settings.get("Binds") or ()]
    sources += [mount["Source"] for mount in settings.get("Mounts") or () if mount.get("Type") == "bind"]
    paths = [path for source in sources if source.startswith("/") for path in (Path(source), *Path(source).parents)]
    return sorted({path for path in paths if not path.exists()}, key=lambda path: -len(path.parts))


@pytest.mark.parametrize("name", CREATES)
def test_a_container_without_gpu_is_created_and_started(guarded, engine, name):
    if CREATES[name].get("HostConfig", {}).get("NanoCpus") and not engine.limits_cpus():
        pytest.skip("the host's cgroups limit no CPUs")
    absent = absent_sources(CREATES[name])
    created = guarded.post("/v1.41/containers/create", CREATES[name])
    assert not created.denied, created
    assert created.status == 201, created
    started = guarded.post(f"/v1.41/containers/{created.json['Id']}/start")
    guarded.remove(created.json["Id"])
    for path in absent:  # where no Engine runs, a folder in place of its socket would let none start any more
        with suppress(FileNotFoundError):
            path.rmdir()
    # What this machine lacks (a device, a folder) is no refusal.
    assert not started.denied, started


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.uri[:60]}")
def test_a_call_passes(guarded, call):
    # The Engine itself may well refuse it: registries and services are not there.
    answer = guarded.send(call)
    assert not answer.denied, answer
