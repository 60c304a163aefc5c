"""The quick path of `convgpu submit`: a usual line, without click (decision 152).

Whatever is unusual raises some error and leaves the line to the whole command, which has the words for it. Until sbatch
has taken the job nothing is changed, so that the line can be read again.
"""

from __future__ import annotations

import os
import sys

from convgpu.cli.cluster.quick_command import QuickCommand, UnusualError
from convgpu.cli.cluster.submission import CLUSTER, DEFAULTS, OWN, PYXIS, settings_file, submission, told
from convgpu.cli.run.docker_arguments import check, scan
from convgpu.cluster import faults
from convgpu.cluster.request import batch_script, check_fits, clock_time, sbatch_words
from convgpu.cluster.shares import DEFAULT_GRANULE, read_nodes
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.quick import quick_json
from convgpu.protocol.sizes import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

_TEXTS: Final = ("partition", "name", "output")
_NUMBERS: Final = ("gpus", "nodes", "cpus_per_gpu")


def submit_quickly(words: Sequence[str]) -> None:
    """Submit a usual line and end this process; return where the whole command has to do it."""
    try:
        number = _submitted(words)
    except KeyboardInterrupt:
        sys.exit(f"{os.linesep}Aborted!")
    except Exception:
        return
    try:
        print(told(number), flush=True)
    except OSError as error:  # the job is there: the whole command would submit it again
        sys.exit(f"Error: job {number} is submitted, and stdout takes nothing: {error.strerror}")
    sys.exit(0)


def _submitted(words: Sequence[str]) -> str:
    """Return the number of the job of a usual line.

    Raises:
        Exception: the line, the cluster or sbatch's answer is not usual; then there is no job.
    """
    line = scan(words, {**OWN, **dict.fromkeys(PYXIS, True)})
    check(line)
    given = read_options(line.own)
    image = line.image[0]
    if any(option.name == "detach" for option in line.options) or image.endswith((".sh", ".py")) or image[0] in "./":
        raise UnusualError(image)
    asked_of_slurm = [QuickCommand(*command) for command in CLUSTER]
    granule = _granule()
    asked = submission(line, given, parse_size(given["gpu_memory"]) if given["gpu_memory"] else None)
    config, nodes = (command.finish() for command in asked_of_slurm)
    sizes, partitions = read_nodes(nodes, asked.partition)
    if any(faults.faults(faults.read_config(config))) or asked.partition not in {None, *partitions}:
        raise UnusualError(asked.partition)
    check_fits(asked, sizes, granule)
    sbatch = QuickCommand("sbatch", "--parsable", *sbatch_words(asked, granule), text=batch_script(asked, image))
    return sbatch.finish().strip().partition(";")[0]


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of our options, by the names of their parameters.

    Raises:
        Exception: one is no option of a usual line, or its value is wrong.
    """
    found: dict[str, Any] = {name.replace("-", "_"): None for name in OWN} | DEFAULTS | {"sbatch": []}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        key = name.replace("-", "_")
        if key == "no_requeue" and not equals:
            found[key] = True
            continue
        value = value if equals else next(rest)
        if key == "sbatch":
            found[key].append(value)
        elif key in _TEXTS or key == "gpu_memory":
            found[key] = value
        elif key in _NUMBERS and value.isdecimal() and int(value):
            found[key] = int(value)
        elif key == "time" and not value.isdecimal():
            found[key] = clock_time(parse_duration(value))
        else:
            raise UnusualError(word)
    return found


def _granule() -> int:
    """Return the bytes of a shard, as `slurm_client.granule` does."""
    try:
        with open(settings_file(), "rb") as file:  # noqa: PTH123 - `pathlib` takes longer than all else here
            return int(quick_json.loads(file.read()).get("granule", DEFAULT_GRANULE))
    except FileNotFoundError:
        return DEFAULT_GRANULE
