"""Why a container that uses a GPU without a limit is not ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from convgpu.authz.facts.permits import Permits
from convgpu.authz.ports import Document, EngineListPort
from convgpu.authz.site.rules import Rules
from convgpu.authz.subject.reader import is_same_plugin

_TASK: Final = "com.docker.swarm.task.id"
# What speaks against a GPU without a limit. An exemption with users holds for their calls, and those are noted.
_BROKEN_RULES: Final = ("gpu-needs-limit", "privileged")


@dataclass(frozen=True, slots=True)
class Unlimited:
    """A container that uses a GPU without a limit.

    Attributes:
        created: Unix seconds; of one that the Engine does not have, when its first process started.
        image, image_id, labels: as the Engine lists them; empty if it does not have it.
        is_limited: the scheduler will know a limit of it soon.
        is_noted: authorization let it start although rules spoke against it.
        is_apart: the Engine started it, for Swarm or as a plugin, and asked nobody then.
    """

    created: float
    image: str = ""
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_limited: bool = False
    is_noted: bool = False
    is_apart: bool = False


def why_kept(container: Unlimited, rules: Rules, since: float) -> str:
    """Return why a container is not ended; empty if nothing permits it. Pure.

    Args:
        container: that uses a GPU without a limit.
        rules: of the site.
        since: Unix seconds from which on permits are noted.
    """
    exempts = (rules.exempts(rule, "", container.image, container.image_id, container.labels) for rule in _BROKEN_RULES)
    reasons = (
        (rules.mode in {"audit", "off"}, f"the rules of the site refuse nothing (mode {rules.mode})"),
        (container.is_noted, "authorization let it start so: an administrator, or an exemption"),
        (container.is_apart, "the Engine started it without a question, as a task of Swarm or a plugin"),
        (container.created <= since, "it is older than the notes on who was permitted: make it again, with a limit"),
        (container.is_limited, "it has a limit, which the scheduler does not know yet"),
        (any(exempts), "an exemption of the site is for everybody"),
    )
    return next((text for holds, text in reasons if holds), "")


class UnlimitedJudge:
    """Judges containers that use a GPU without a limit.

    Args:
        name: the plugin's name in the Engine.
        engine: is asked.
        permits: noted at starts.
        rules: returns those of the site, None while its file has a mistake.
    """

    def __init__(
        self,
        name: str,
        engine: EngineListPort,
        permits: Permits,
        rules: Callable[[], Rules | None],
    ) -> None:
        self._name = name
        self._engine = engine
        self._permits = permits
        self._rules = rules

    def why_kept(self, container: str, started: float, *, is_known: bool) -> str:
        """Return why a container is not ended; empty if nothing permits it.

        Args:
            container: the Engine's id.
            started: when its first process did, in Unix seconds.
            is_known: the scheduler knows a volume of it. Of a limit without a volume it knows before the start.

        Raises:
            EngineUnreachable: nobody can tell.
        """
        rules = self._rules()
        if rules is None:
            return "the rules of the site have a mistake: convgpu authz status"
        found = self._find(container, started, is_known=is_known)
        # Asked last: whoever is permitted is noted before it starts.
        noted = replace(found, is_noted=container in self._permits)
        return why_kept(noted, rules, self._permits.since)

    def _find(self, container: str, started: float, *, is_known: bool) -> Unlimited:
        if container in self._permits:
            return Unlimited(started)
        row = self._engine.listed(container)
        if row is None:
            return Unlimited(started, is_apart=self._engine.is_plugin(container))
        labels = row.get("Labels") or {}
        return Unlimited(
            created=float(row["Created"]),
            image=row.get("Image") or "",
            image_id=row.get("ImageID") or "",
            labels=labels,
            is_limited=not is_known and self._has_volume(row),
            is_apart=_TASK in labels and self._engine.is_task(container),
        )

    def _has_volume(self, row: Document) -> bool:
        return any(is_same_plugin(mount.get("Driver") or "", self._name) for mount in row.get("Mounts") or ())
