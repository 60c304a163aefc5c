"""The options of `convgpu run` and `create` that are ConvGPU's own: for click, and for the quick path."""

from __future__ import annotations

from convgpu.cli.run.gpu_access import parse_gpus
from convgpu.cli.run.injection import check_memory, check_priority, check_wait
from convgpu.cli.terminal.option_table import VOLUME_DRIVER, OptionRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

TERMS: Final = ("priority", "suspend", "backing", "admit", "gang")
"""The keys of those that are options of the volume as they stand."""


def _check_gpus(text: str) -> str:
    parse_gpus(text)
    return text


# In the order of the help.
OPTIONS: Final = (
    OptionRow(
        ("--gpu-memory",),
        "gpu_memory",
        "The most memory the container may use on each of its GPUs: 512m, 2g, 2GiB, or a share of each, 50%. "
        "One limit per GPU: GPU-uuid:2g,GPU-uuid:4g.",
        "SIZE",
        check_memory,
        required=True,
    ),
    OptionRow(
        ("--gpus",),
        "gpus",
        "any or a count: so many, which the scheduler chooses; all; as for docker device=0, '\"device=0,1\"'.  "
        "[default: any]",
        "GPUS",
        _check_gpus,
    ),
    OptionRow(
        ("--wait", "--gpu-wait"),
        "wait",
        "How long an allocation may be paused, for example 30s or 5m; after that it fails as out of memory. "
        "Default: no end.",
        "DURATION",
        check_wait,
    ),
    OptionRow(
        ("--priority",),
        "priority",
        "Of the containers that wait, those with a higher number are served first.  [default: 0]",
        "NUMBER",
        check_priority,
    ),
    OptionRow(
        ("--admit",),
        "admit",
        "whole: the first allocation waits until the whole limit is free, and the container never waits again. "
        "part: it takes what it needs.  [default: part]",
        choices=("part", "whole"),
    ),
    OptionRow(
        ("--gang",),
        "gang",
        "Containers of one gang start with their whole limits together, or not at all; SIZE: how many.",
        "NAME[:SIZE]",
    ),
    OptionRow(
        ("--suspend",),
        "suspend",
        "auto: while the container waits or idles its memory may leave the GPU for others; it comes back to the "
        "same addresses.  [default: no]",
        choices=("no", "auto"),
    ),
    OptionRow(
        ("--backing",),
        "backing",
        "unified: managed memory, so that one container can have more than its GPU, which it has alone while it "
        "runs; slower than memory of the GPU.  [default: vmm]",
        choices=("vmm", "unified"),
    ),
    VOLUME_DRIVER,
    OptionRow(
        ("--dry-run",), "dry_run", "Print the docker command, and say what was added; run nothing.", is_flag=True
    ),
)

OWN: Final = {name[2:]: not row.is_flag for row in OPTIONS for name in row.names} | {"help": False}
"""Their names without dashes; whether each takes a value."""
