"""What runs behind the containers' backs comes back: the scheduler in the plugin, and the Engine itself."""

import os
import signal

import pytest

pytestmark = pytest.mark.engine

GIB = 1 << 30


def test_a_killed_scheduler_comes_back_and_knows_the_usage(engine, plugin, hold):
    holder = hold(plugin, "4g", "2g")
    holder.wait_until_holding(2 * GIB)
    usage = holder.usage()
    os.kill(engine.processes(plugin)["daemon"], signal.SIGKILL)
    # The plugin's two processes end together, and the Engine starts the plugin again.
    engine.wait_for("the plugin answers again", lambda: engine.answers_for(plugin) and holder.usage() == usage)
    holder.go_on()
    assert holder.exit_code() == 0, holder.output()


def test_a_killed_engine_leaves_no_memory_behind(engine, plugin, hold):
    # Its containers are killed at the next start, and the plugin gets no Unmount for them.
    holder = hold(plugin, "12g", "10g")
    holder.wait_until_holding(10 * GIB)
    engine.kill()
    engine.start()
    engine.wait_for_plugin(plugin)
    engine.wait_for("the container is not running", lambda: not holder.running())
    engine.wait_for("its memory is returned", lambda: holder.usage() == 0)
    successor = hold(plugin, "12g", "10g")
    successor.wait_until_holding(10 * GIB)
    holder.remove()
    assert [row["name"] for row in engine.containers(plugin)] == [successor.volume]
