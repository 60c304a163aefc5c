"""The starting list: what the containers of a host needed, and the file that permits it. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from convgpu.authz.site.strict_list import SECTIONS, Need
from convgpu.authz.verdict import Refusal

_MAX_NAMES: Final = 5
_HEAD: Final = """\
# A starting list for strict rules, made by `convgpu policy write` from what ran here.
# It permits what these containers needed, and nothing else. Read each line: whoever may write a folder from which
# root's programs read becomes root. Then: convgpu policy check FILE, and copy it to /etc/convgpu/rules.toml
# (with what stands there already). A runtime in `runtimes` judges no start: make its containers again with
# `convgpu install runtime --write --default`, and take it out. To see first what it would refuse, set mode = "audit".
mode = "strict"

[strict]
"""


# All but those that say how images came to the host: no record of a container shows that.
_WRITTEN: Final = tuple(section for section in SECTIONS if section != "registries")


@dataclass(slots=True)
class StartingList:
    """What containers needed, and those that no list permits.

    Attributes:
        needs: names of the containers by section and entry.
        refused: containers that the rules refuse with any list, each with the reason.
        remade: containers that mount by `-v` where users exchange names: they have to be made again.
        containers: how many were seen.
        problems: why no container starts under these rules, whatever they permit.
    """

    needs: dict[str, dict[str, list[str]]] = field(default_factory=lambda: {section: {} for section in _WRITTEN})
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    remade: list[str] = field(default_factory=list)
    containers: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, wanted: Iterable[Need], name: str) -> None:
        """Add what a container needed."""
        for need in wanted:
            self.add_entry(need.section, need.value, [name])

    def add_entry(self, section: str, value: str, names: Sequence[str]) -> None:
        """Add an entry that some containers needed; one of a section that is not known is left out."""
        if section in self.needs:
            known = self.needs[section].setdefault(value, [])
            known += [name for name in names if name not in known]

    def as_toml(self) -> str:
        """Return the file."""
        parts = [_HEAD]
        for section, entries in self.needs.items():
            rows = [f"    {json.dumps(value)},  # {_shown(names)}" for value, names in sorted(entries.items())]
            parts.append("\n".join([f"{section} = [", *rows, "]"]) if rows else f"{section} = []")
        parts += [f"\n# As it stands, {problem}" for problem in self.problems]
        if self.refused:
            parts.append("\n# These are refused with any list. Who needs one asks for an exemption, with users:")
            parts += [f"# {name}: {refusal.rule}" for name, refusal in self.refused]
        if self.remade:
            parts.append("\n# These mount by -v a folder where users write. Make them again with --mount type=bind:")
            parts += [f"# {_plain(name)}" for name in self.remade]
        return "\n".join(parts) + "\n"

    def as_data(self) -> Mapping[str, Any]:
        """Return the same as data."""
        return {
            "containers": self.containers,
            "strict": self.needs,
            "problems": self.problems,
            "remade": self.remade,
            "refused": [
                {"container": name, "rule": refusal.rule, "reason": refusal.text} for name, refusal in self.refused
            ],
        }


def _shown(names: Sequence[str]) -> str:
    shown = ", ".join(_plain(name) for name in names[:_MAX_NAMES])
    return f"{shown} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else shown


def _plain(name: str) -> str:
    """Return a name that ends no comment: TOML permits no control characters there."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)
