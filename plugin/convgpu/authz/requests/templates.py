"""Templates in Swarm services: they are expanded for each task, after the service was judged.

https://docs.docker.com/reference/cli/docker/service/create/#create-services-using-templates
"""

import re
from typing import Final

_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# Names that Swarm or the administrator of a node gives; a user cannot make a path of the host from them.
_NAMES: Final = frozenset(
    {
        ".Node.Hostname",
        ".Node.ID",
        ".Node.Platform.Architecture",
        ".Node.Platform.OS",
        ".Service.ID",
        ".Task.ID",
        ".Task.Name",
        ".Task.Slot",
    }
)
_SERVICE: Final = ".Service.Name"
# In place of such a name.
_ANY_NAME: Final = "0task"


def has_template(text: str) -> bool:
    """Tell whether a text holds a template, whose value is known when a task starts."""
    return "{{" in text


def expand(text: str, service: str) -> str | None:
    """Return a text with its templates expanded; None if one of them could expand to anything.

    Args:
        text: of the client.
        service: name of the service.
    """

    def value(found: re.Match[str]) -> str:
        field = found[1].strip()
        return service if field == _SERVICE else _ANY_NAME if field in _NAMES else found[0]

    expanded = _TEMPLATE.sub(value, text)
    return None if has_template(expanded) else expanded
