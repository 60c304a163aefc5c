"""The files that make a Slurm cluster one with ConvGPU. Pure."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from convgpu.cluster.layout import SETTINGS_VARIABLE
from convgpu.cluster.settings import NodeCard, Settings
from convgpu.cluster.shares import LEAST_GRANULE, MIB, gres_lines, node_gres, shards_of
from convgpu.protocol.sizes import format_size

_HOOKS: Final = {"prolog": "prolog", "epilog": "epilog", "health": "epilog"}
_HOOK: Final = (
    "#!/bin/sh\n# Written by `convgpu slurm setup`.\n{variable}={settings} exec {python} -I -S {program} {library}\n"
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What ConvGPU ships for Slurm.

    Attributes:
        folder: of the programs, on each node.
        python: the interpreter that has ConvGPU.
        library: folder of its packages: without `site` a Prolog takes half the time.
        lua: text of job_submit.lua.
        conf: text of convgpu.conf.
        controller: text of convgpu-controller.conf.
    """

    folder: str
    python: str
    library: str
    lua: str
    conf: str
    controller: str


def with_node(settings: Settings, node: str, cards: tuple[NodeCard, ...], network: int = 0) -> Settings:
    """Return the settings with the cards of one node, and its network in Gbit/s; 0: not counted."""
    networks = {**settings.networks, node: network}
    return msgspec.structs.replace(settings, nodes={**settings.nodes, node: cards}, networks=networks)


def files(settings: Settings, directory: str, sources: Sources) -> dict[str, str]:
    """Return the files of Slurm's configuration folder by name, each with its text.

    Raises:
        ValueError: the granule is no whole number of MiB, in which job_submit.lua counts; too small; or larger than a
            card.
    """
    if settings.granule % MIB or settings.granule < LEAST_GRANULE:
        raise ValueError(
            f"a granule of {format_size(settings.granule)}: write whole MiB, at least {format_size(LEAST_GRANULE)}, "
            "for example --granule 256m"
        )
    rows = [row.card for cards in settings.nodes.values() for row in cards]
    largest = max((shards_of(card, settings.granule, settings.threshold) for card in rows), default=0)
    lua = _with_local(sources.lua, "GRANULE", settings.granule // MIB)
    lua = _with_local(lua, "LARGEST", largest)
    if settings.threshold > 1:
        lua = lua.replace("local OVERSUBSCRIBED = false", "local OVERSUBSCRIBED = true")
    hooks = {name: _hook(program, directory, sources) for name, program in _HOOKS.items()}
    gres = [line for node, rows in sorted(settings.nodes.items()) for line in _gres(settings, node, rows)]
    return {
        "convgpu.json": msgspec.json.format(msgspec.json.encode(settings), indent=2).decode() + "\n",
        "convgpu.conf": sources.conf.replace("@DIRECTORY@", f"{directory}/convgpu").replace(
            "@GRACE@", str(settings.grace)
        ),
        "convgpu-controller.conf": sources.controller,
        "job_submit.lua": lua,
        "gres.conf": "".join(f"{line}\n" for line in ["# Written by `convgpu slurm setup`.", *gres]),
        **{f"convgpu/{name}": text for name, text in hooks.items()},
    }


def _with_local(lua: str, name: str, value: int) -> str:
    return re.sub(rf"^local {name} = .*$", f"local {name} = {value}", lua, flags=re.MULTILINE)


def _gres(settings: Settings, node: str, rows: tuple[NodeCard, ...]) -> list[str]:
    lines = gres_lines(node, [row.card for row in rows], settings.granule, settings.threshold)
    network = settings.networks.get(node)
    return [*lines, f"NodeName={node} Name=net Count={network} Flags=CountOnly"] if network else lines


def _hook(name: str, directory: str, sources: Sources) -> str:
    words = (f"{directory}/convgpu.json", sources.python, f"{sources.folder}/{name}", sources.library)
    settings, python, program, library = map(shlex.quote, words)
    return _HOOK.format(variable=SETTINGS_VARIABLE, settings=settings, python=python, program=program, library=library)


def node_words(settings: Settings, node: str) -> str:
    """Return what the node's line of slurm.conf needs."""
    cards = node_gres([row.card for row in settings.nodes[node]], settings.granule, settings.threshold)
    network = settings.networks.get(node)
    return f"Gres={cards},net:{network}" if network else f"Gres={cards}"


def explain_cards(settings: Settings, node: str) -> Iterator[str]:
    """Say of each card what Slurm may promise of it: the product, host memory to take, and the reuse count."""
    for row in settings.nodes[node]:
        product = int(row.capacity * settings.threshold)
        taken = format_size(product - row.capacity) if product > row.capacity else "none"
        yield (
            f"{row.file}  {row.uuid}: capacity {format_size(row.capacity)} x {settings.threshold:g} = "
            f"{format_size(product)}, host memory {taken}, "
            f"{shards_of(row.card, settings.granule, settings.threshold)} containers of {format_size(settings.granule)}"
        )
