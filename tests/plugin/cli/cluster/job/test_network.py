"""What holds a job's container to its share of the network, as the Engine of its node allows."""

import pytest

from convgpu.cli.cluster.job import network
from convgpu.cli.connect.engine import EngineRefused
from convgpu.cli.show.network import describe

OURS = {"path": "/usr/local/bin/convgpu-runtime"}
HELD = ["-e", "CONVGPU_NETWORK=5gbit"]


class Engine:
    def __init__(self, default="runc", **runtimes):
        self.info = {"DefaultRuntime": default, "Runtimes": {"runc": {"path": "runc"}, **runtimes}}

    def get(self, path):
        drivers = {"/networks/bridge": "bridge", "/networks/mine": "bridge", "/networks/a%2Fb": "macvlan"}
        if path not in drivers:
            raise EngineRefused(404, "no such network")
        return {"Driver": drivers[path]}


@pytest.mark.parametrize(
    ("engine", "name", "runtime", "words"),
    [
        (Engine(convgpu=OURS), "bridge", "", [*HELD, "--runtime", "convgpu"]),
        (Engine(convgpu=OURS), "default", "", [*HELD, "--runtime", "convgpu"]),
        (Engine("convgpu", convgpu=OURS), "mine", "", HELD),
        (Engine(convgpu=OURS), "mine", "convgpu", HELD),
        (Engine(convgpu=OURS), "absent", "", [*HELD, "--runtime", "convgpu"]),
    ],
)
def test_a_bridged_container_gets_our_runtime(engine, name, runtime, words):
    assert network.fence(5, name, runtime, engine) == (words, "")


@pytest.mark.parametrize(
    ("engine", "name", "runtime", "why"),
    [
        (Engine(convgpu=OURS), "host", "", "it is on the host's network; --net bridge is fenced"),
        (Engine(convgpu=OURS), "none", "", "it has no network"),
        (Engine(convgpu=OURS), "a/b", "", "the network a/b is one of the driver macvlan, not a bridge"),
        (Engine(), "bridge", "", "the Engine has no runtime convgpu (convgpu install runtime --write)"),
        (Engine(convgpu=OURS), "bridge", "runc", "the Engine has no runtime convgpu (convgpu install runtime --write)"),
    ],
)
def test_where_nothing_can_hold_it_one_line_says_why(engine, name, runtime, why):
    line = f"5 Gbit/s are counted, and nothing holds the container to them: {why}"
    assert network.fence(5, name, runtime, engine) == ([], line)
    assert network.fence(0, name, runtime, engine) == ([], "")


def test_inspect_says_what_is_held_and_measured():
    running = {"State": {"Running": True}, "HostConfig": {"NetworkMode": "mine"}}
    figures = {"eth0": {"rx_bytes": 1 << 20, "tx_bytes": 3}, "eth1": {"rx_bytes": 1 << 20, "tx_bytes": 4}}
    held = {**running, "Config": {"Env": ["A=b", "CONVGPU_NETWORK=5g"]}}
    assert describe(held, figures) == "5gbit at most, 2MiB received, 7B sent"
    assert describe(running, figures) == "2MiB received, 7B sent"
    assert describe({**running, "HostConfig": {"NetworkMode": "host"}}, {}).startswith("the host's, ")
    assert describe({"State": {"Running": False}}, figures) == describe(running, {}) == ""
