"""The runtime's last word on a real Engine in guard: what undoes a limit after the judged call does not start.

Nobody asks authorization when a restart policy starts a container again, and it does not look into images.
"""

import io
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import bypasses
import pytest
from strict_run import run_in

pytestmark = pytest.mark.engine

VOLUME = {"Mounts": [bypasses.OURS]}
POLICIES = ("always", "on-failure", "unless-stopped")
HOOK = [bypasses.HOOK]
NO_LIMIT = "this container would get a GPU and has no limit: give it one (-e CONVGPU_MEMORY=2g)"


def stay(_: Path) -> None:
    """Change nothing on the host."""


def lead_to_gpu(folder: Path) -> None:
    """Exchange the file or link that was judged, by a name of the same folder."""
    (folder / "new").symlink_to("gpu")
    (folder / "new").replace(folder / "mine")


def become_gpu(folder: Path) -> None:
    (folder / "mine").unlink()
    os.mknod(folder / "mine", 0o666 | 0o020000, os.makedev(195, 3))


@dataclass(frozen=True)
class Undoing:
    """A container that is permitted, how its limit is undone while it runs, and what the refusal says.

    Attributes:
        host, env: of its request; FOLDER stands for the folder, PLUGIN for the plugin's.
        script: what its owner does in it.
        swap: what a user of the host does.
        says: a part of its error, with what to type or do.
    """

    says: str
    host: dict[str, Any] = field(default_factory=dict)
    env: list[str] = field(default_factory=list)
    script: str = "true"
    swap: Callable[[Path], None] = stay


def device(name: str) -> dict[str, Any]:
    row = {"PathOnHost": f"FOLDER/{name}", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}
    return {"Devices": [row]}


PRELOAD = {"Type": "bind", "Source": "PLUGIN/ld.so.preload", "Target": "/etc/ld.so.preload", "ReadOnly": True}
MOVE_RUN = "mv /run /old && mkdir -p /tmp/convgpu && ln -s /tmp /run"
MOVED = "/run/convgpu leads to /tmp/convgpu in this container"
UNDOINGS = {
    "/run is renamed": Undoing(MOVED, {**VOLUME, **device("gpu")}, HOOK, MOVE_RUN),
    "/run is renamed, an injected limit": Undoing(MOVED, device("gpu"), ["CONVGPU_MEMORY=1g"], MOVE_RUN),
    "a device is swapped": Undoing(NO_LIMIT, device("mine"), swap=lead_to_gpu),
    "a device is made anew": Undoing(NO_LIMIT, device("mine"), swap=become_gpu),
    "a bind is swapped": Undoing(NO_LIMIT, {"Binds": ["FOLDER/mine:/dev/x"]}, swap=lead_to_gpu),
    "a device is swapped, beside a volume without a hook": Undoing(
        "its programs would not load the hook: give it -e LD_PRELOAD=/run/convgpu/libconvgpu.so",
        {**VOLUME, **device("mine")},
        swap=lead_to_gpu,
    ),
}


def request(guard, folder, undoing, image="bare", **more):
    host = {"NetworkMode": "none", **undoing.host, **more}
    for old, new in (("FOLDER", str(folder)), ("PLUGIN", str(guard.directory_of("convgpu")))):
        host = replaced(host, old, new)
    return {"Image": image, "Cmd": ["sleep", "600"], "Env": undoing.env, "HostConfig": host}


def replaced(value, old, new):
    if isinstance(value, dict):
        return {key: replaced(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, old, new) for each in value]
    return value.replace(old, new) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def images(guard):
    """Images whose folders of the hook's places are the container's own, or links.

    A folder of the image cannot be renamed in a container, for its parts lie in two layers; nor can /etc, in which the
    Engine puts files, and which it makes a folder where it was a link.
    """
    guard.configure({"authorization-plugins": []})
    made = guard("create", "--network", "none", bypasses.IMAGE, "true")
    whole = subprocess.run(guard.command("export", made), check=True, capture_output=True).stdout
    guard("rm", made)
    guard.configure({"authorization-plugins": ["convgpu"]})
    links = {"bare": {}, "moved-run": {"run": "/tmp"}, "moved-preload": {"etc/ld.so.preload": "/tmp/x"}}
    for name, places in links.items():
        data = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(whole)) as old, tarfile.open(fileobj=data, mode="w") as new:
            for member in old:
                if member.name.partition("/")[0] not in ("run", "etc"):
                    new.addfile(member, old.extractfile(member) if member.isreg() else None)
            for place, target in places.items():
                link = tarfile.TarInfo(place)
                link.type, link.linkname = tarfile.SYMTYPE, target
                new.addfile(link)
        subprocess.run(guard.command("import", "-", name), input=data.getvalue(), check=True, capture_output=True)
    yield
    guard("image", "rm", "-f", *links)


@pytest.fixture
def undone(guard, raw, folder, images):  # noqa: ARG001
    """Return a starter of containers that undoes their limits while they run; they are gone after the test."""
    made = []

    def start(name, policy):
        (folder / "mine").unlink(missing_ok=True)
        (folder / "mine").symlink_to("zero")
        body = request(guard, folder, UNDOINGS[name], RestartPolicy={"Name": policy})
        created = raw.post("/containers/create", body)
        assert created.status == 201, created
        made.append(created.json["Id"])
        assert raw.post(f"/containers/{made[-1]}/start").status == 204
        told = run_in(raw, made[-1], f"{UNDOINGS[name].script} && echo done")
        assert told.splitlines()[-1] == "done", told
        UNDOINGS[name].swap(folder)
        # By the host's number: who asks the Engine to kill it ends its policy, too.
        os.kill(state(raw, made[-1])["Pid"], signal.SIGKILL)
        return made[-1]

    yield start
    for container in made:
        raw.remove(container)


def state(raw, container):
    return raw.get(f"/containers/{container}/json")["State"]


@pytest.mark.parametrize(("name", "policy"), list(zip(UNDOINGS, cycle(POLICIES), strict=False)))
def test_a_restart_policy_does_not_start_it(guard, raw, undone, name, policy):
    container = undone(name, policy)
    guard.wait_for("its start failed", lambda: state(raw, container)["Error"])
    assert UNDOINGS[name].says in guard.inspect("container", container, "{{.State.Error}}")
    assert state(raw, container)["Running"] is False


@pytest.mark.parametrize("name", UNDOINGS)
def test_nobody_starts_it_again(guard, raw, undone, name):
    container = undone(name, "no")
    guard.wait_for("it has ended", lambda: not state(raw, container)["Running"])
    started = raw.post(f"/containers/{container}/start")
    if started.denied:  # authorization sees what is swapped on the host, at a start that somebody asks for
        assert UNDOINGS[name].swap is not stay
        return
    assert (started.status == 204, state(raw, container)["Running"]) == (False, False)
    assert UNDOINGS[name].says in guard.inspect("container", container, "{{.State.Error}}")


PRELOADED = Undoing("", {"Mounts": [bypasses.OURS, PRELOAD], **device("gpu")})
INJECTED = Undoing("", device("gpu"), ["CONVGPU_MEMORY=1g"])
LIMITED = Undoing("", {**VOLUME, **device("gpu")}, HOOK)
IMAGES = [
    ("moved-run", LIMITED, "/run/convgpu"),
    ("moved-run", PRELOADED, "/run/convgpu"),
    ("moved-run", INJECTED, "/run/convgpu"),
    ("moved-preload", PRELOADED, "/etc/ld.so.preload"),
    ("moved-preload", INJECTED, "/etc/ld.so.preload"),
]


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(("image", "asked", "place"), IMAGES)
def test_an_image_that_leads_the_hook_away_does_not_start(guard, raw, folder, image, asked, place):
    created = raw.post("/containers/create", request(guard, folder, asked, image))
    assert created.status == 201, created
    container = created.json["Id"]
    assert not raw.post(f"/containers/{container}/start").denied
    error, running = guard.inspect("container", container, "{{.State.Error}}"), state(raw, container)["Running"]
    raw.remove(container)
    assert f"use an image in which no folder on the way to {place} is a link" in error
    assert running is False


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("asked", [LIMITED, PRELOADED, INJECTED], ids=["limited", "preloaded", "injected"])
def test_the_same_starts_where_nothing_is_undone(guard, raw, folder, asked):
    container = raw.post("/containers/create", request(guard, folder, asked)).json["Id"]
    assert raw.post(f"/containers/{container}/start").status == 204
    raw.remove(container)
