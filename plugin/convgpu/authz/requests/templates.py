"""Templates in services: Swarm expands them for each task, after everybody who could judge what comes of them.

https://docs.docker.com/reference/cli/docker/service/create/#create-services-using-templates
"""

import re
from typing import Final

_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# What a task is called by, by Swarm or by the administrator of its node: no path of the host comes of it.
_NAMES: Final = frozenset({
    ".Node.Hostname", ".Node.ID", ".Node.Platform.Architecture", ".Node.Platform.OS", ".Service.ID", ".Task.ID",
    ".Task.Name", ".Task.Slot",
})  # fmt: skip
_SERVICE: Final = ".Service.Name"
# In place of such a name.
_SOMETHING: Final = "0task"


def has_template(text: str) -> bool:
    """Tell whether something of a text is only known when a task starts."""
    return "{{" in text


def expand(text: str, service: str) -> str | None:
    """Return a text with its templates expanded; None if it has one of which anything may come.

    Args:
        text: as the client wrote it.
        service: its name, which a client chooses.
    """

    def value(found: re.Match[str]) -> str:
        field = found[1].strip()
        return service if field == _SERVICE else _SOMETHING if field in _NAMES else found[0]

    expanded = _TEMPLATE.sub(value, text)
    return None if has_template(expanded) else expanded
