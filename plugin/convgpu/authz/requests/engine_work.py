"""Settings by which a container has the Engine itself work beyond measure, at the cost of everybody. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.requests import go_json

_FREE: Final = frozenset({"mode", "labels", "labels-regex", "env", "env-regex", "compress", "disabled"})
# The Engine renames all files of a log each time that one is full (moby, daemon/logger/loggerutils/logfile.go).
_MOST_FILES: Final = 100
_LEAST_SIZE: Final = 64_000  # bytes of one of them
# It keeps so much of what a container printed in its own memory.
_MOST_BUFFER: Final = 16_000_000  # bytes
LONGEST_STOP: Final = 3600  # seconds
_NUMBER: Final = re.compile("[0-9]{1,15}")
_SIZE: Final = re.compile(r"(\d{1,15}) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)
_POWERS: Final = " kmgtp"
# The names of https://docs.docker.com/engine/logging/log_tags/. Functions can take any memory ({{pad "x" N 0}}), and so
# can names of what a request makes as long as it likes ({{.Command}}).
_NAME: Final = re.compile(r"\{\{-? *\.(?:Full|Image|ImageFull|Daemon)?(?:ID|Name) *-?\}\}")
_LONGEST_TAG: Final = 256  # characters
# They are in each line of the log.
_ADDED: Final = frozenset({"labels", "labels-regex", "env", "env-regex"})
_MOST_ADDED: Final = 32_000  # characters of labels and variables


def odd_log_options(host: Mapping[str, object]) -> Iterator[str]:
    """Return the options of a HostConfig's log by which the Engine could take any time or memory."""
    for name, value in go_json.map_of_texts(go_json.child(host, "logconfig"), "config").items():
        if not _is_usual(name.removeprefix("cache-"), value):
            yield f"log {name}={value}"


def long_lines(host: Mapping[str, object], config: Mapping[str, object]) -> Iterator[str]:
    """Return whether a container's labels or variables are in each line of its log, and long."""
    added = _ADDED & go_json.map_of_texts(go_json.child(host, "logconfig"), "config").keys()
    labels = go_json.map_of_texts(config, "labels")
    texts = [*labels.keys(), *labels.values(), *go_json.texts(config, "env")]
    if added and sum(map(len, texts)) > _MOST_ADDED:
        yield "log long lines"


def odd_ends(config: Mapping[str, object]) -> Iterator[str]:
    """Return what of a Config ends the Engine, or keeps it from ending.

    The first is a health check of `CMD` without a command (moby, daemon/health.go). And at its own end the Engine waits
    for each container as long as that says, without end below zero (daemon/daemon.go, ShutdownTimeout).
    """
    if go_json.texts(go_json.child(config, "healthcheck"), "test") == ["CMD"]:
        yield "healthcheck CMD"
    timeout = go_json.field(config, "stoptimeout")
    if isinstance(timeout, int) and not 0 <= timeout <= LONGEST_STOP:
        yield "stoptimeout"


def longest_stop(timeout: int, query: Mapping[str, Sequence[str]]) -> int:
    """Return how many seconds the Engine may wait for a container's end when it starts it again.

    Args:
        timeout: the container's own, which holds unless the call has one.
        query: of the call: below zero it waits without end, which counts as the longest that strict rules permit. The
            Engine reads the first value, and takes an empty one for none.
    """
    times = [text or str(timeout) for text in query.get("t", ())] or [str(timeout)]
    return max(min(int(text), LONGEST_STOP) if _NUMBER.fullmatch(text) else LONGEST_STOP for text in times)


def _is_usual(name: str, value: str) -> bool:
    match name:
        case "max-file":
            return _NUMBER.fullmatch(value) is not None and int(value) <= _MOST_FILES
        case "max-size":
            return (size := _bytes(value)) is not None and size >= _LEAST_SIZE
        case "max-buffer-size":
            return (size := _bytes(value)) is not None and size <= _MOST_BUFFER
        case "tag":
            return len(value) <= _LONGEST_TAG and "{{" not in _NAME.sub("", value)
        case _:
            return name in _FREE


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * 1000 ** _POWERS.index(found[2].lower() or " ") if found else None
