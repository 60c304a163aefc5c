"""One plugin from `docker plugin install` to `rm`, with containers that use it all the while."""

import os
import signal

import pytest

pytestmark = pytest.mark.engine

GIB = 1 << 30


def check_end_by_kill(engine, hold):
    holder = hold("lifecycle", "2g", "1g")
    holder.wait_until_holding(GIB)
    os.kill(int(engine.inspect("container", holder.id, "{{.State.Pid}}")), signal.SIGKILL)
    assert holder.exit_code() == 137
    wait_until_returned(engine, holder)


def check_end_by_stop(engine, hold):
    holder = hold("lifecycle", "2g", "1g")
    holder.wait_until_holding(GIB)
    engine("stop", "-t", "1", holder.id)
    wait_until_returned(engine, holder)


def wait_until_returned(engine, holder):
    engine.wait_for("its memory is returned", lambda: holder.usage() == 0)
    engine.wait_for("the scheduler sees its end", lambda: holder.state() in ("ended", "created", "unknown"))
    holder.remove()
    assert holder.record() is None


def lasting(holder):
    """Return its record without what the audit and the Engine's list add when they come."""
    record = holder.record()
    devices = [{**device, "seen": None} for device in record["devices"]]
    return {**record, "devices": devices, "engine": None}


def check_copy(engine, holder, tmp_path):
    # `docker cp` on a running container sends Mount and Unmount with the ID of the container's own mount.
    before = lasting(holder)
    (tmp_path / "file").write_text("content")
    engine("cp", str(tmp_path / "file"), f"{holder.id}:/tmp/file")
    assert engine("exec", holder.id, "cat", "/tmp/file") == "content"
    assert lasting(holder) == before


def upgrade(engine, reference):
    engine("plugin", "disable", "-f", "lifecycle")
    engine("plugin", "upgrade", "--skip-remote-check", "--grant-all-permissions", "lifecycle", reference)
    engine("plugin", "enable", "lifecycle")


def test_from_install_to_rm(engine, images, hold, tmp_path):
    first, second = images
    install = ("plugin", "install", "--grant-all-permissions", "--disable", "--alias", "lifecycle")
    engine(*install, first, "CONVGPU_NAME=lifecycle")
    engine("plugin", "set", "lifecycle", *engine.settings_of_plugins())
    engine("plugin", "enable", "lifecycle")
    assert engine.containers("lifecycle") == []

    holder = hold("lifecycle", "4g", "2g")
    holder.wait_until_holding(2 * GIB)
    check_copy(engine, holder, tmp_path)
    check_end_by_kill(engine, hold)
    check_end_by_stop(engine, hold)

    usage = holder.usage()
    upgrade(engine, second)
    assert holder.running()
    # The new scheduler learns it from the container's process, which connects again.
    engine.wait_for("the usage is known again", lambda: holder.usage() == usage)
    assert holder.state() == "running"
    holder.go_on()
    assert holder.exit_code() == 0, holder.output()
    wait_until_returned(engine, holder)

    engine("plugin", "disable", "lifecycle")
    engine("plugin", "rm", "lifecycle")
    assert engine.run("plugin", "inspect", "lifecycle", check=False).returncode != 0
