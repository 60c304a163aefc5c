"""A container's share of the network on a bridge: token buckets that our OCI runtime sets, on a real Engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import Engine

pytestmark = pytest.mark.engine

STREAM = Path(__file__).with_name("stream.pl")
RATE = 100  # Mbit/s
SECONDS = "1"


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[str]:
    """The address of a container on a bridge that takes and gives streams, without a share."""
    engine("network", "create", "shared")
    words = ("--network", "shared", "--stop-signal", "KILL", "-v", f"{STREAM}:/stream.pl:ro")
    name = engine("run", "-d", "--name", "server", *words, "convgpu/demo", "perl", "/stream.pl", "serve")
    engine.wait_for("it listens", lambda: "listens" in engine("logs", name))
    yield engine.inspect("container", name, "{{.NetworkSettings.Networks.shared.IPAddress}}")
    engine("rm", "-f", name)
    engine("network", "rm", "shared")


@pytest.fixture
def clean() -> None:
    """In place of that of this folder: the server stays."""


def stream(engine, server, *words):
    """Return the Mbit/s that a container sent and received."""
    place = ("run", "--rm", "--network", "shared", "-v", f"{STREAM}:/stream.pl:ro", *words, "convgpu/demo")
    return tuple(map(float, engine(*place, "perl", "/stream.pl", server, SECONDS).split()))


def test_a_container_has_its_share_of_the_network_in_both_directions(engine, runtime, server):
    runtime = runtime[:2]
    fenced = stream(engine, server, *runtime, "-e", f"CONVGPU_NETWORK={RATE}mbit")
    free = stream(engine, server, *runtime)
    assert fenced == pytest.approx((RATE, RATE), rel=0.15)
    assert min(free) > 3 * RATE


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-e", "CONVGPU_NETWORK=0mbit"), "CONVGPU_NETWORK: '0mbit' is no bandwidth: write 2gbit or 500mbit"),
        (("-e", "CONVGPU_NETWORK=-1gbit"), "CONVGPU_NETWORK: '-1gbit' is no bandwidth: write 2gbit or 500mbit"),
        (("-e", "CONVGPU_NETWORK=1gbit", "--network", "host"), "a network that is not its own cannot be fenced"),
        (
            ("-e", "CONVGPU_NETWORK=1gbit", "--network", "container:server"),
            "a network that is not its own cannot be fenced",
        ),
        (("-e", "CONVGPU_NETWORK=1gbit", "--cap-add", "NET_ADMIN"), "could take its fence away: leave out it or"),
    ],
)
def test_what_nothing_could_hold_does_not_start(engine, runtime, server, words, line):  # noqa: ARG001
    place = () if "--network" in words else ("--network", "shared")
    done = engine.run("run", "--rm", *runtime[:2], *place, *words, "convgpu/demo", "true", check=False)
    assert done.returncode != 0
    assert line in done.stderr
