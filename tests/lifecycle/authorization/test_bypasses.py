"""Attempts to bypass authorization, sent raw to a real Engine: without the plugin each works, with it none.

What counts is the container that came of an attempt, as the Engine describes it, not the answer.
"""

import os
import shutil

import bypasses
import pytest
from bypasses import LINKS, Attempt
from docker_engine import version
from raw_engine import RawEngine

pytestmark = pytest.mark.engine

PLAIN = {"Image": bypasses.IMAGE, "Cmd": ["true"]}
ATTEMPTS = {attempt.name: attempt for attempt in bypasses.attempts(version())}


def make_links():
    """Create files that a user of the host could create, and a device node that only root can."""
    shutil.rmtree(LINKS, ignore_errors=True)
    (LINKS / "folder").mkdir(parents=True)
    (LINKS / "link-to-root").symlink_to("/")
    (LINKS / "link-to-run").symlink_to("/run")
    (LINKS / "link-to-link").symlink_to(f"../{LINKS.name}/link-to-root")
    (LINKS / "link-to-node").symlink_to("node")
    os.mknod(LINKS / "node", 0o600 | 0o020000, os.makedev(195, 0))


def create(raw: RawEngine, attempt: Attempt) -> str | None:
    """Send an attempt; return its container, if that got the request."""
    answer = raw.send(attempt.call)
    if answer.status != 201:
        return None
    container = answer.json["Id"]
    if attempt.look(raw.get(f"/containers/{container}/json")):
        return container
    raw.remove(container)
    return None


@pytest.fixture(scope="module")
def prepared(engine, plugin, runtimes):
    """An Engine without authorization, with the objects that some attempts need."""
    make_links()
    engine.configure({"authorization-plugins": [], "runtimes": runtimes})
    raw = RawEngine(f"{engine.directory}/docker.sock")
    source = raw.post("/containers/create", PLAIN).json["Id"]
    raw.post(f"/commit?container={source}&repo={bypasses.CUDA_IMAGE}&changes=ENV+{bypasses.VISIBLE}")
    raw.remove(source)
    raw.post("/volumes/create", {"Name": bypasses.DISGUISED, "DriverOpts": bypasses.DISGUISES["bind"]})
    raw.post("/volumes/create", {"Name": bypasses.THEIRS, "Driver": plugin, "DriverOpts": {"memory": "8g"}})
    raw.post("/containers/create?name=" + bypasses.DONOR, {**PLAIN, "HostConfig": {"Binds": ["/etc:/x"]}})
    cover = {**PLAIN, "HostConfig": {"Binds": [f"{LINKS}/folder:/usr/lib"]}}
    raw.post("/containers/create?name=" + bypasses.COVER_DONOR, cover)
    part = {**PLAIN, "HostConfig": {"Mounts": [bypasses.part("/run/convgpu", "driver")]}}
    raw.post("/containers/create?name=" + bypasses.PART_DONOR, part)
    yield raw
    engine.configure({"authorization-plugins": []})
    raw.remove(bypasses.DONOR)
    raw.remove(bypasses.COVER_DONOR)
    raw.remove(bypasses.PART_DONOR)
    engine("volume", "rm", bypasses.DISGUISED, bypasses.THEIRS)
    engine("image", "rm", "-f", bypasses.CUDA_IMAGE)
    engine.configure({"runtimes": {}})
    shutil.rmtree(LINKS)


@pytest.fixture(scope="module")
def unguarded(prepared):
    """The containers of the attempts without authorization; none was started."""
    created = {name: create(prepared, attempt) for name, attempt in ATTEMPTS.items()}
    yield {name: container for name, container in created.items() if container is not None}
    for container in created.values():
        if container is not None:
            prepared.remove(container)


@pytest.fixture(scope="module")
def guarded(engine, plugin, unguarded, prepared):  # noqa: ARG001
    engine.configure({"authorization-plugins": [plugin]})
    yield prepared
    engine.configure({"authorization-plugins": []})


def test_there_are_enough_attempts():
    assert len(ATTEMPTS) >= 150


def test_each_attempt_works_without_the_plugin(unguarded):
    assert unguarded.keys() == {name for name, attempt in ATTEMPTS.items() if version() < attempt.before}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_attempt_gets_through(guarded, name):
    container = create(guarded, ATTEMPTS[name])
    if container is None:
        return
    try:
        # Some can be told only from the Engine's view, so they are judged when they start.
        started = guarded.post(f"/containers/{container}/start")
    finally:
        guarded.remove(container)
    assert started.denied


@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.parametrize("action", ["start", "restart"])
def test_existing_containers_without_a_limit_do_not_start(guarded, unguarded, name, action):
    if name in unguarded:
        assert guarded.post(f"/v1.41/containers/{unguarded[name]}/{action}").denied
