"""What holds a job's container to its share of the node's network, on the node where it starts."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from convgpu.cli.connect.engine import Engine, EngineRefused
from convgpu.runtime.network.rate import VARIABLE

_HOST: Final = "host"
_PROGRAM: Final = "convgpu-runtime"


def _is_ours(runtime: Mapping[str, Any]) -> bool:
    return str(runtime.get("path", "")).rpartition("/")[2] == _PROGRAM


def fence(share: int, network: str, runtime: str, engine: Engine) -> tuple[list[str], str]:
    """Return the words of `docker run` that hold a container to its share, or none and why not.

    Args:
        share: Gbit/s that Slurm counts for the job here; 0: none.
        network: the container's network in Docker's words.
        runtime: its OCI runtime; empty: the Engine's default.
        engine: of this node.
    """
    if not share:
        return [], ""
    obstacle = _obstacle(network, engine)
    runtimes = engine.info.get("Runtimes") or {}
    chosen = runtime or str(engine.info.get("DefaultRuntime"))
    ours = [name for name in (chosen, *(() if runtime else sorted(runtimes))) if _is_ours(runtimes.get(name) or {})]
    if not obstacle and not ours:
        obstacle = "the Engine has no runtime convgpu (convgpu install runtime --write)"
    if obstacle:
        return [], f"{share} Gbit/s are counted, and nothing holds the container to them: {obstacle}"
    words = ["-e", f"{VARIABLE}={share}gbit"]
    return ([*words, "--runtime", ours[0]] if ours[0] != chosen else words), ""


def _obstacle(network: str, engine: Engine) -> str:
    """Return why a network of this name cannot be fenced; empty where it can."""
    if network == _HOST:
        return "it is on the host's network; --net bridge is fenced"
    if network == "none":
        return "it has no network"
    name = "bridge" if network == "default" else network
    try:
        driver = engine.get(f"/networks/{quote(name, safe='')}").get("Driver")
    except EngineRefused:
        return ""  # none of that name: docker says so better
    return "" if driver == "bridge" else f"the network {name} is one of the driver {driver}, not a bridge"
