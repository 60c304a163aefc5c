"""A demonstration on an Engine that is killed leaves nothing: no container, no volume."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest
from daemon import ended_with_test

pytestmark = pytest.mark.engine


def names(engine):
    """Return the demonstration's containers, and the plugin's volumes."""
    containers = engine("ps", "-a", "--filter", "name=convgpu-demo", "--format", "{{.Names}}").split()
    return containers, engine("volume", "ls", "-q").split()


def held(engine, name):
    """Pause a container, and say whether it was there for that."""
    return engine.run("pause", name, check=False).returncode == 0


@pytest.mark.parametrize("word", ["start A", "is PAUSED"])
def test_nothing_of_a_killed_demonstration_is_left(engine, plugin, word):
    environment = {**os.environ, "CONVGPU_NAME": plugin, "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-m", "convgpu.cli", "-H", engine.host, "demo"]
    with ended_with_test(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)) as demo:
        assert any(word in line for line in demo.stdout)
        if word == "is PAUSED":  # on a busy machine it would have ended before the Engine has answered
            demo.send_signal(signal.SIGSTOP)
        # Likewise its containers, before the next demonstration looks for them.
        engine.wait_for("a container is held", lambda: any(map(partial(held, engine), names(engine)[0])))
        demo.send_signal(signal.SIGKILL)
    again = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Removed what a killed demo had left: convgpu-demo-" in again.stdout
    engine.wait_for("nothing is left", lambda: names(engine) == ([], []))
