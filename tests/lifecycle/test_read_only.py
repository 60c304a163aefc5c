"""What containers get is read-only: nobody replaces the library, and the plugin leaves no mount behind."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

GIB = 1 << 30


@pytest.fixture
def forged(tmp_path):
    """A library as somebody would like to have it."""
    path = tmp_path / "forged"
    path.write_text("forged")
    return path


def delivered(engine, plugin, holder):
    """Return the bytes of the library in the holder's folder, as the host sees them."""
    folder = Path(holder.record()["mountpoint"]).name
    return (engine.directory_of(plugin) / "containers" / folder / "libconvgpu.so").read_bytes()


def test_neither_a_container_nor_docker_cp_replaces_the_library(engine, plugin, hold, forged):
    holder = hold(plugin, "2g", "1g")
    holder.wait_until_holding(GIB)
    shipped = delivered(engine, plugin, holder)
    for command in ("rm /run/convgpu/libconvgpu.so", "echo > /run/convgpu/ld.so.preload", "mkdir /run/convgpu/new"):
        done = engine.run("exec", holder.id, "env", "-u", "LD_PRELOAD", "sh", "-c", command, check=False)
        assert (done.returncode, "Read-only file system" in done.stderr) != (0, False), command
    copy = ("cp", str(forged), f"{holder.id}:/run/convgpu/libconvgpu.so")
    assert "read-only file system" in engine.run(*copy, check=False).stderr
    engine("kill", holder.id)
    assert "read-only file system" in engine.run(*copy, check=False).stderr
    assert delivered(engine, plugin, holder) == shipped


def test_the_view_goes_with_the_plugin(engine, plugin, hold):
    def mounts():
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [point for point in points if point.startswith(f"{engine.directory_of(plugin)}/")]

    holder = hold(plugin, "2g", "1g")
    holder.wait_until_holding(GIB)
    assert mounts() != []
    engine("plugin", "disable", "-f", plugin)
    assert mounts() == []
    engine("plugin", "enable", plugin)
    engine("restart", holder.id)
    holder.wait_until_holding(GIB)
    done = engine.run("exec", holder.id, "touch", "/run/convgpu/new", check=False)
    assert "Read-only file system" in done.stderr
