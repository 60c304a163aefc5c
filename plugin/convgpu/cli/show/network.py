"""The network of a container: what holds it, and what it received and sent, as the Engine says."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.terminal.errors import Unavailable
from convgpu.protocol.engine_container import EngineContainer
from convgpu.protocol.sizes import format_size
from convgpu.runtime.network.rate import VARIABLE, format_rate, parse_rate

_HOST: Final = "host"


def network(containers: Sequence[EngineContainer]) -> str:
    """Return what is known of the network of a volume's running containers; empty where the Engine says nothing."""
    if not containers:
        return ""
    try:
        engine = Engine.connect()
        said = [describe(engine.get(f"/containers/{one.id}/json"), _figures(engine, one.id)) for one in containers]
    except Unavailable:
        return ""  # all else is known without it
    return "; ".join(filter(None, said))


def _figures(engine: Engine, container: str) -> Mapping[str, Any]:
    words = {"stream": "false", "one-shot": "true"}
    found: Mapping[str, Any] = engine.get(f"/containers/{container}/stats", **words).get("networks") or {}
    return found


def describe(container: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """Describe a container's network.

    Args:
        container: `docker inspect` of it.
        figures: what its interfaces received and sent, by name; none for one on the host's network.
    """
    if not (container.get("State") or {}).get("Running"):
        return ""
    if (container.get("HostConfig") or {}).get("NetworkMode") == _HOST:
        return "the host's, not held to a share and not measured for it alone"
    if not figures:
        return ""
    received, sent = (format_size(sum(row[name] for row in figures.values())) for name in ("rx_bytes", "tx_bytes"))
    return f"{_share(container)}{received} received, {sent} sent"


def _share(container: Mapping[str, Any]) -> str:
    """Return what it is held to: our runtime starts none with the variable that it does not hold."""
    rows = (container.get("Config") or {}).get("Env") or ()
    text = next((row.partition("=")[2] for row in rows if row.startswith(f"{VARIABLE}=")), "")
    try:
        return f"{format_rate(parse_rate(text))} at most, " if text else ""
    except ValueError:
        return ""  # of another runtime
