"""Containers that use a GPU without a limit, on a real Engine: the audit ends those that nothing permits."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from built import DRIVER
from docker_engine import Engine, Holder
from host_state import missing_cgroup2

pytestmark = pytest.mark.engine

# Users are named, so that the exemption holds by the note at a start only.
RULES = """
[[exempt]]
users = ["local"]
label = "allowed"
rules = ["host-path"]
"""
STOP = ("CONVGPU_OVERUSE=stop", "CONVGPU_OVERUSE_AFTER=1s", "CONVGPU_AUDIT=500ms")


@pytest.fixture(scope="module", params=["the host's cgroups", "cgroup v2"])
def engine(
    request: pytest.FixtureRequest, start_engine: Callable[..., AbstractContextManager[Engine]]
) -> Iterator[Engine]:
    """An Engine that asks the plugin; containers above their limit and without one are ended."""
    is_new = request.param == "cgroup v2"
    if is_new and (reason := missing_cgroup2()):
        pytest.skip(reason)
    with start_engine(cgroup2=is_new) as engine:
        assert not is_new or engine("info", "-f", "{{.CgroupVersion}}") == "2"
        (engine.directory / "etc/convgpu").mkdir(parents=True)
        (engine.directory / "etc/convgpu/rules.toml").write_text(RULES)
        engine("plugin", "set", "convgpu", *engine.settings_of_plugins(), f"etc.source={engine.directory}/etc", *STOP)
        engine("plugin", "enable", "convgpu")
        engine.wait_for_plugin("convgpu")
        yield engine


def run(engine: Engine, *options: str) -> str:
    """Start a container that holds memory of the device without hook and limit; return its id."""
    volumes = ("-v", f"{engine.directory_of('convgpu')}/driver:/driver", "-e", "LD_LIBRARY_PATH=/driver")
    words = ("-d", "-i", "--network", "none", *volumes, *options)
    return engine("run", *words, "convgpu/demo", "gpu-hold", "--wait-for-stdin", "1g")


def run_and(engine: Engine, command: list[str], *options: str) -> str:
    """Start a container and do ``command`` to it before it is ended; return its id.

    Where this host is busy the audit ends one before the Engine has done it: then another is started.
    """
    for _ in range(10):
        container = run(engine, *options)
        done = engine.run(*command, container, check=False)
        if done.returncode == 0 and not states(engine, container)[0].startswith("exited"):
            return container
    pytest.fail(f"each of ten was ended before docker {command[0]}: {done.stderr}")


def unlimited(engine: Engine) -> dict[str, str | None]:
    """Return why each container is kept that holds memory without a limit, by its id."""
    [device] = engine.administration("convgpu", "/v1/devices")["devices"]
    return {row["id"]: row["kept"] for row in device["unlimited"] if not row["pid"]}


def states(engine: Engine, *containers: str) -> list[str]:
    return [engine.inspect("container", each, "{{.State.Status}} {{.State.ExitCode}}") for each in containers]


@contextmanager
def host_program(engine: Engine) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the host's that holds memory, as an X server does."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(engine.directory_of("convgpu") / "driver")}
    command = [str(DRIVER / "gpu-hold"), "--wait-for-stdin", "1g"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def begin_notes_anew(engine: Engine) -> None:
    """Let the plugin be installed only now, as far as it knows."""
    notes = engine.directory_of("convgpu") / "permits.json"
    engine("plugin", "disable", "-f", "convgpu")
    notes.unlink()
    engine("plugin", "enable", "convgpu")
    engine.wait_for_plugin("convgpu")
    since = json.loads(notes.read_text())["since"]
    # The Engine tells in whole seconds when a container was made.
    engine.wait_for("what is made now is newer", lambda: time.time() > since + 1)


def test_who_is_ended(engine: Engine) -> None:
    older = run(engine)
    engine.wait_for("it holds its memory", lambda: older in unlimited(engine))
    begin_notes_anew(engine)
    engine.configure({"authorization-plugins": ["convgpu"]})
    exempted = run(engine, "--label", "allowed")
    engine.configure({"authorization-plugins": []})
    limited = Holder(engine, "convgpu", "2g", "1g")
    with host_program(engine) as program:
        stranger = run(engine, "--label", "allowed", "--label", "com.docker.swarm.task.id=forged")
        engine.wait_for("it is ended", lambda: states(engine, stranger) == ["exited 137"])
        engine.wait_for("it is forgotten", lambda: unlimited(engine).keys() == {older, exempted})
        engine.wait_for("the others are judged", lambda: None not in unlimited(engine).values())
        older_than = "it is older than the notes on who was permitted: make it again, with a limit"
        permitted = "authorization let it start so: an administrator, or an exemption"
        assert unlimited(engine) == {older: older_than, exempted: permitted}
        assert states(engine, older, exempted, limited.id) == ["running 0"] * 3
        assert program.poll() is None
    events = engine.administration("convgpu", "/v1/events")["events"]
    stopped = [(event["container"], event["reason"]) for event in events if event["kind"] == "stopped"]
    assert stopped == [(stranger, "unlimited")]

    # Another plugin process and scheduler know it still, and nobody has to be seen starting.
    engine("plugin", "disable", "-f", "convgpu")
    other = run(engine)
    engine("plugin", "enable", "convgpu")
    engine.wait_for_plugin("convgpu")
    engine.wait_for("it is ended", lambda: states(engine, other) == ["exited 137"])
    assert states(engine, older, exempted, limited.id) == ["running 0"] * 3
    engine.wait_for("it is forgotten", lambda: unlimited(engine).keys() == {older, exempted})


def test_what_its_user_set_up_delays_no_end(engine: Engine) -> None:
    """The kernel keeps SIGKILL from who is paused, with version 1 of cgroups, and from who has no time on a CPU.

    Beside version 1's controllers nothing limits CPUs with version 2: there the quota is not the kernel's (the Engine
    says so and goes on).
    """
    before = set(unlimited(engine))
    paused = run_and(engine, ["pause"])
    slow = run_and(engine, ["update", "--cpu-quota", "1000"], "--cpu-period", "1000000", "--cpu-quota", "1000000")
    engine.wait_for("both are ended", lambda: states(engine, paused, slow) == ["exited 137"] * 2)
    engine.wait_for("both are forgotten", lambda: set(unlimited(engine)) == before)
    assert engine.administration("convgpu", "/v1/devices")["surviving"] == []
