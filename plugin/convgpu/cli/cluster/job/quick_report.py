"""What the Epilog asks the plugin of a job's containers, without records, whose import takes most of its time."""

from __future__ import annotations

from convgpu.cli.connect.engine_documents import plugin_url, read_plugin
from convgpu.cli.connect.quick_http import QuickHttp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Final

_OK: Final = 200
_UNIX: Final = "unix://"
_STOPPED: Final = "/v1/history?kinds=stopped"


def peak(engine: str, plugin: str, names: Collection[str]) -> int | None:
    """Return the most bytes that one of a job's containers had of a card.

    Args:
        engine: where the node's Engine listens.
        plugin: its name there.
        names: the ids of the job's containers in the Engine.

    Returns:
        None where it takes more to know it: no UNIX socket, a container whose name the scheduler does not know, or one
        that was stopped, of which Slurm is told why.
    """
    if not engine.startswith(_UNIX):
        return None
    found = read_plugin(plugin, _get(engine.removeprefix(_UNIX), plugin_url(plugin)))
    if found is None:
        return None
    containers = _get(found.path, "/v1/containers")["containers"]
    if any(row.get("engine") is None for row in containers):
        return None
    ours = [row for row in containers if row["engine"]["id"] in names]
    stopped = {event.get("container") for event in _get(found.path, _STOPPED)["events"]}
    if any(row["name"] in stopped for row in ours):
        return None
    return max((share["peak"] for row in ours for share in row["devices"]), default=0)


def _get(socket: str, url: str) -> dict[str, Any]:
    """Return the document of a URL.

    Raises:
        OSError, ValueError: there is none.
    """
    answer = QuickHttp(socket).ask("GET", url)
    document = answer.json()
    if answer.status != _OK or not isinstance(document, dict):
        raise ValueError(f"{url}: the answer is {answer.status}")
    return document
