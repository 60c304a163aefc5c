"""The calls of the Engine's API that strict rules permit, and what each needs; of others nobody needs ask. Pure.

The table has every call of the API up to 1.52, those that only read too. A call that it lacks is refused: of an Engine
of tomorrow, of a debugger (`/debug`), or of a version of the API that is gone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

# Everybody may call these: they tell what lists and settings say, end containers, or leave what nobody owns.
_OPEN: Final = """
    OPTIONS .*
    GET     _ping info version events
    HEAD    _ping
    POST    auth
    GET     containers/json containers/NAME/json containers/NAME/stats exec/NAME/json
    POST    containers/NAME/stop containers/NAME/kill containers/NAME/wait containers/NAME/unpause
    POST    containers/NAME/resize exec/NAME/resize build/cancel
    DELETE  containers/NAME images/NAME networks/NAME volumes/NAME
    GET     images/json images/search images/NAME/json images/NAME/history
    GET     distribution/NAME/json
    GET     networks networks/NAME volumes volumes/NAME plugins plugins/privileges plugins/NAME/json
    GET     services services/ID tasks tasks/ID nodes nodes/ID secrets secrets/ID
"""
# These show or change what is inside a container: who could make it may.
_INSIDE: Final = """
    GET     containers/NAME/logs containers/NAME/top containers/NAME/export
    GET     containers/NAME/attach/ws
    POST    containers/NAME/attach
"""
# These need an entry in `calls`, whose name stands in front.
COPY: Final = "cp"
_LISTED: Final = {
    "prune": "POST containers/prune images/prune networks/prune volumes/prune build/prune",
    "tag": "POST images/NAME/tag",
    "push": "POST images/NAME/push",
    # For it the Engine mounts what the container has once more, as root and by names.
    COPY: """
        GET containers/NAME/archive
        HEAD containers/NAME/archive""",
    # For these the Engine walks, as root, through files that containers exchange for links meanwhile.
    "size": "GET system/df",
    "diff": "GET containers/NAME/changes",
    # The Engine reads an image's layers through links in them, and says what it found.
    "save": "GET images/get images/NAME/get",
    "load": "POST images/load",
    # A name that changes between judgement and call can come to mean another container.
    "rename": "POST containers/NAME/rename",
    # Under cgroup v1 a paused process is ended by nothing, and keeps its memory of a GPU.
    "pause": "POST containers/NAME/pause",
    "services": """
        DELETE services/ID
        GET services/ID/logs tasks/ID/logs""",
    # `GET /swarm` tells by which word another manager joins; configs show their content.
    "swarm": """
        GET swarm swarm/unlockkey configs configs/ID
        POST swarm/leave swarm/update swarm/unlock nodes/ID/update
        POST secrets/create secrets/ID/update configs/create configs/ID/update
        DELETE nodes/ID secrets/ID configs/ID
        PUT volumes/NAME""",
    "checkpoints": """
        GET containers/NAME/checkpoints
        POST containers/NAME/checkpoints
        DELETE containers/NAME/checkpoints/NAME""",
}


@dataclass(frozen=True, slots=True)
class OtherCall:
    """A call that only strict rules judge.

    Attributes:
        name: under which it must stand in the list of the site; empty for a call that needs no entry.
        containers: into which it reaches.
        makes_network: it makes a network, whose driver and options are judged.
        connects: it connects the container that its body names to a network.
        lists_processes: it runs `ps` on the host, with arguments of the caller's.
        prepared: the program that it starts, which an earlier call prepared for `docker exec`.
        streams: it has a body that the Engine shows nobody, by its nature: an archive, or the input of a program; or
            one that the Engine does not read.
        pulls: the names of images that it pulls.
        unknown: the table lacks it.
    """

    name: str = ""
    containers: tuple[str, ...] = ()
    makes_network: bool = False
    connects: bool = False
    lists_processes: bool = False
    prepared: str = ""
    streams: bool = False
    pulls: tuple[str, ...] = ()
    unknown: bool = False

    @property
    def is_open(self) -> bool:
        """Whether everybody may call it, whatever it says."""
        return not (
            self.name
            or self.containers
            or self.makes_network
            or self.connects
            or self.prepared
            or self.pulls
            or self.unknown
        )


def _rows(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Read rows of a method and paths; names are `.*` in the Engine's router, but for those of Swarm."""
    for method, *paths in map(str.split, text.strip().splitlines()):
        for path in paths:
            first, *more = path.replace("ID", "[^/]+").split("NAME")
            pattern = first + "".join("(?P<name>.+?)" + rest if not n else ".+" + rest for n, rest in enumerate(more))
            yield method, re.compile(pattern, re.DOTALL)


def _streams(name: str, method: str) -> bool:
    return name == "load" or method in {"GET", "HEAD"}


_RECORDS: Final = re.compile("containers/(?:.+?/)?json", re.DOTALL)
# As the Engine reads a parameter that is true or false.
_FALSE: Final = frozenset({"", "0", "no", "false", "none"})
_STARTS: Final = re.compile("exec/(?P<name>.+?)/start", re.DOTALL)
# The stricter ones first: of two rows that fit, the first counts.
_TABLE: Final = (
    *((method, path, OtherCall(name, ("",) if "containers/(" in path.pattern else (), streams=_streams(name, method)))
      for name, text in _LISTED.items() for method, path in _rows(text)),
    *((method, path, OtherCall(containers=("",), streams=True)) for method, path in _rows(_INSIDE)),
    *((method, path, OtherCall()) for method, path in _rows(_OPEN)),
    *((method, path, OtherCall(connects=True)) for method, path in _rows(
        "POST networks/NAME/connect networks/NAME/disconnect")),
    *((method, path, OtherCall(makes_network=True)) for method, path in _rows("POST networks/create")),
)  # fmt: skip


def read_other_call(method: str, path: str, query: Mapping[str, Sequence[str]]) -> OtherCall:
    """Return what is judged of a call.

    Args:
        method: of HTTP, in capitals.
        path: decoded, without a version and without a slash at its ends.
        query: its parameters; they matter where `is_judged_by_query`.
    """
    if (call := _judged_by_query(method, path, query)) is not None:
        return call
    if method == "POST" and (starts := _STARTS.fullmatch(path)) is not None:
        return OtherCall(prepared=starts["name"])
    for its_method, pattern, call in _TABLE:
        found = pattern.fullmatch(path) if method == its_method else None
        if found is not None:
            if not call.containers:
                return call
            return replace(call, containers=(found["name"],), lists_processes=path.endswith("/top"))
    return OtherCall(unknown=True)


def is_judged_by_query(method: str, path: str) -> bool:
    """Tell whether the parameters of a call say what it does, so that `read_other_call` needs them."""
    if method == "POST":
        return path in {"commit", "images/create"}
    return method == "GET" and _RECORDS.fullmatch(path) is not None


def _judged_by_query(method: str, path: str, query: Mapping[str, Sequence[str]]) -> OtherCall | None:
    """Return what is judged of a call whose parameters say what it does; None of another one."""
    if method == "POST" and path == "commit":
        # Each one that is named, because Engines differ in which of several they read.
        return OtherCall("commit", tuple(dict.fromkeys(query.get("container", ()))))
    if method == "POST" and path == "images/create":
        if any(query.get("fromSrc", ())):
            return OtherCall("import", streams=True)
        return OtherCall(pulls=tuple(query.get("fromImage", ())))
    if method == "GET" and _RECORDS.fullmatch(path) and _asks_size(query):
        return OtherCall("size")
    return None


def _asks_size(query: Mapping[str, Sequence[str]]) -> bool:
    return any(value.strip().lower() not in _FALSE for value in query.get("size", ()))
