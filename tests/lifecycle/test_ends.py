"""The end of a container in all the ways in which an Engine lets it end, or seem to end, unseen.

After each test everything has come back: nothing is mounted, and nothing of the device is taken.
"""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from docker_engine import Holder

pytestmark = pytest.mark.engine

GIB = 1 << 30


@pytest.fixture(scope="module", autouse=True)
def the_device_can_be_had_whole(engine, plugin):
    """After all tests one container gets what each of them has to give back."""
    yield
    last = Holder(engine, plugin, "15g", "14g")
    last.wait_until_holding(14 * GIB)
    last.remove()


@pytest.fixture(autouse=True)
def all_comes_back(engine, plugin):
    yield
    for container in engine("ps", "-a", "-q").split():
        engine("rm", "-f", "-v", container)
    for volume in engine("volume", "ls", "-q").split():
        engine("volume", "rm", volume)
    assert engine.containers(plugin) == []
    assert list((engine.directory_of(plugin) / "containers").iterdir()) == []

    def taken():
        device = engine.administration(plugin, "/v1/devices")["devices"][0]
        return [device[name] for name in ("granted", "used", "settling")]

    engine.wait_for("the device is free", lambda: taken() == [0, 0, 0])


def named(engine, plugin, name, memory="4g"):
    """Create a volume by name; return the options of containers that have it."""
    engine("volume", "create", "-d", plugin, "-o", f"memory={memory}", name)
    return ("--mount", f"type=volume,src={name},dst=/run/convgpu")


@contextmanager
def disabled(engine, plugin):
    engine("plugin", "disable", "-f", plugin)
    try:
        yield
    finally:
        engine("plugin", "enable", plugin)
        engine.wait_for_plugin(plugin)


@contextmanager
def stopped(engine, plugin, how):
    """The Engine does not run meanwhile; `how` is what ended it."""
    getattr(engine, how)()
    try:
        yield
    finally:
        engine.start()
        engine.wait_for_plugin(plugin)


def kill(engine, holder):
    os.kill(int(engine.inspect("container", holder.id, "{{.State.Pid}}")), signal.SIGKILL)


def mounts(holder):
    return holder.record()["mounts"]


def test_copies_from_and_to_a_stopped_container(engine, plugin, hold, tmp_path):
    holder = hold(plugin, "2g", "1g")
    holder.wait_until_holding(GIB)
    engine("kill", holder.id)
    holder.wait_until_ended()
    (tmp_path / "file").write_text("content")
    engine("cp", str(tmp_path / "file"), f"{holder.id}:/tmp/file")
    engine("cp", f"{holder.id}:/tmp/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "content"
    holder.wait_until_ended()


def test_a_start_that_fails(engine, plugin):
    volume = named(engine, plugin, "failing")
    for _ in range(2):
        done = engine.run("run", "--rm", "--network", "none", *volume, "convgpu/demo", "/no/such/program", check=False)
        assert done.returncode == 127
    (record,) = engine.containers(plugin)
    assert (record["state"], record["mounts"]) == ("ended", 0)


def test_a_path_that_the_image_has_is_mounted_at_create_and_left_alone(engine, plugin):
    volume = f"type=volume,volume-driver={plugin},volume-opt=memory=2g,dst=/etc"
    created = engine("create", "--mount", volume, "convgpu/demo", "true")
    (record,) = engine.containers(plugin)
    assert record["mounts"] == 0
    folder = engine.directory_of(plugin) / "containers" / Path(record["mountpoint"]).name
    assert {"libconvgpu.so", "scheduler.sock", "ld.so.preload"} <= {path.name for path in folder.iterdir()}
    assert "passwd" not in {path.name for path in folder.iterdir()}
    engine("rm", "-v", created)


def test_two_containers_on_one_volume(engine, plugin, hold):
    volume = named(engine, plugin, "shared")
    first = hold(plugin, "", "1g", options=volume)
    second = hold(plugin, "", "1g", options=volume)
    second.wait_until_holding(2 * GIB)
    assert mounts(second) == 2
    engine("kill", first.id)
    engine.wait_for("the first's memory is back", lambda: second.usage() < 2 * GIB)
    assert (second.state(), mounts(second)) == ("running", 1)
    engine("kill", second.id)
    second.wait_until_ended()


def test_volumes_from(engine, plugin, hold):
    first = hold(plugin, "4g", "1g")
    first.wait_until_holding(GIB)
    second = hold(plugin, "", "1g", options=("--volumes-from", first.id))
    second.wait_until_holding(2 * GIB)
    assert (second.volume, mounts(first)) == (first.volume, 2)
    engine("kill", second.id)
    engine.wait_for("the second's memory is back", lambda: first.usage() < 2 * GIB)
    assert (first.state(), mounts(first)) == ("running", 1)


def test_one_volume_twice_in_one_container(engine, plugin, hold):
    volume = named(engine, plugin, "twice")
    holder = hold(plugin, "", "1g", options=(*volume, "--mount", "type=volume,src=twice,dst=/opt/again"))
    holder.volume = "twice"
    holder.wait_until_holding(GIB)
    assert mounts(holder) == 2
    engine("kill", holder.id)
    holder.wait_until_ended()


def test_a_container_ends_while_the_plugin_is_disabled(engine, plugin, hold):
    holder = hold(plugin, "12g", "10g")
    holder.wait_until_holding(10 * GIB)
    with disabled(engine, plugin):
        engine("kill", holder.id)  # its unmount fails
    holder.wait_until_ended()
    # Started again it is mounted with the old id.
    engine("start", holder.id)
    holder.wait_until_holding(10 * GIB)
    assert mounts(holder) == 1
    engine("kill", holder.id)
    holder.wait_until_ended()


@pytest.mark.parametrize("process", ["gunicorn", "daemon", "plugin"])
def test_a_killed_process_of_the_plugin(engine, plugin, hold, process):
    holder = hold(plugin, "12g", "10g")
    holder.wait_until_holding(10 * GIB)
    usage = holder.usage()
    waiter = hold(plugin, "12g", "10g")
    engine.wait_for("the second is paused", lambda: waiter.state() == "waiting")
    before = engine.processes(plugin)
    os.kill(before[process], signal.SIGKILL)

    def back():
        return engine.processes(plugin).get(process, before[process]) != before[process] and engine.answers_for(plugin)

    engine.wait_for("the plugin is back", back)
    engine.wait_for("the usage is known again", lambda: (holder.usage(), waiter.state()) == (usage, "waiting"))
    kill(engine, holder)
    holder.wait_until_ended()
    waiter.wait_until_holding(10 * GIB)


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_restart_policy_mounts_before_the_engine_answers(engine, plugin, hold, how):
    volume = named(engine, plugin, "always")
    holder = hold(plugin, "", "1g", options=("--restart", "always", *volume))
    holder.wait_until_holding(GIB)
    with stopped(engine, plugin, how):
        pass
    engine.wait_for("the container is started again", holder.running)
    holder.wait_until_holding(GIB)
    # A killed Engine unmounts nothing, and mounts with the same id again.
    assert mounts(holder) == (1 if how == "end" else 2)
    engine("rm", "-f", holder.id)
    holder.wait_until_ended()


def test_a_mount_that_the_engine_gave_up(engine, plugin, hold):
    holder = hold(plugin, "2g", "1g")
    holder.wait_until_holding(GIB)
    engine("kill", holder.id)
    holder.wait_until_ended()
    scheduler = engine.processes(plugin)["daemon"]
    os.kill(scheduler, signal.SIGSTOP)
    try:
        done = engine.run("start", holder.id, check=False)
        assert (done.returncode, "does not answer" in done.stderr) == (1, True), done.stderr
        assert engine("ps", "-q") == ""
    finally:
        os.kill(scheduler, signal.SIGCONT)
    # The scheduler counts the mount now, and nobody will unmount it.
    holder.wait_until_ended()


@pytest.fixture
def surviving(engine, plugin):
    """The Engine with live-restore: containers and plugins live on while it does not run."""

    def choose(live_restore):
        engine.configure({"live-restore": live_restore})
        engine.end()
        engine.start()
        engine.wait_for_plugin(plugin)

    choose(True)
    yield engine
    for container in engine("ps", "-a", "-q").split():
        engine("rm", "-f", "-v", container)
    choose(False)


def test_live_restore(surviving, plugin, hold, tmp_path):
    holders = {name: hold(plugin, "3g", "1g") for name in ("lives", "dies", "copied")}
    for holder in holders.values():
        holder.wait_until_holding(GIB)
    usage = holders["lives"].usage()
    for how in ("end", "kill"):
        with stopped(surviving, plugin, how):
            pass
        assert (holders["lives"].usage(), holders["lives"].state()) == (usage, "running")
    pid = int(surviving.inspect("container", holders["dies"].id, "{{.State.Pid}}"))
    with stopped(surviving, plugin, "kill"):
        os.kill(pid, signal.SIGKILL)
    holders["dies"].wait_until_ended()

    # The Engine 20.10.24 has forgotten how often it mounted, and sends no unmount after this.
    (tmp_path / "file").write_text("content")
    surviving("cp", str(tmp_path / "file"), f"{holders['copied'].id}:/tmp/file")
    assert holders["copied"].state() == "running"
    surviving("kill", holders["copied"].id)
    holders["copied"].wait_until_ended()

    assert (holders["lives"].usage(), holders["lives"].state()) == (usage, "running")
    surviving("kill", holders["lives"].id)
    holders["lives"].wait_until_ended()


def test_a_container_of_a_moment_keeps_its_name(engine, plugin):
    """It is gone before a list is asked for; `docker run --rm` removes its volume, too."""
    volume = f"type=volume,volume-driver={plugin},volume-opt=memory=1g,dst=/run/convgpu"
    for name in ("brief-1", "brief-2"):
        engine("run", "--rm", "--network", "none", "--name", name, "--mount", volume, "convgpu/demo", "true")
    history = engine.administration(plugin, "/v1/history?kinds=removed")["events"]
    assert [event.get("name") for event in history][-2:] == ["brief-1", "brief-2"]
