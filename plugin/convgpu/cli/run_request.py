"""What `convgpu run` adds to a `docker run`. Pure."""

import csv
import io
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from convgpu.cli.run_options import MOUNT_PATH, CommandLine, UsageError, environment, mounts_at
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.sizes import parse_size

LIBRARY: Final = f"{MOUNT_PATH}/libconvgpu.so"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for: option `memory`, option `wait` (None: no deadline), the plugin's name."""

    memory: str
    wait: str | None
    driver: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the answer depends on beside the command line.

    Attributes:
        library_path: where the volume brings the CUDA driver (simulated devices), or None.
        inherited: the caller's environment.
        env_files: the text of each file named by --env-file, in order.
        image_environment: `NAME=VALUE` rows of the image; empty while the Engine does not have the image.
        image_volumes: the paths at which the image wants volumes.
        occupied: the image has something of its own where our volume has to be.
    """

    library_path: str | None
    inherited: Mapping[str, str]
    env_files: Sequence[str] = ()
    image_environment: Sequence[str] = ()
    image_volumes: Sequence[str] = ()
    occupied: bool = False


def check_memory(text: str) -> str:
    """Return `text` if it is a limit: a size, or `UUID:SIZE,UUID:SIZE,...`.

    Raises:
        ValueError: it is not; the text names the forms.
    """
    for part in text.split(","):
        uuid, colon, size = part.rpartition(":")
        if (colon and not uuid) or ("," in text and not colon):
            raise ValueError(f"{text!r} is not a limit: write one size, or GPU-uuid:SIZE,GPU-uuid:SIZE")
        parse_size(size)
    return text


def check_wait(text: str) -> str:
    """Return `text` if it is a duration as the option `wait` of a volume takes it.

    Raises:
        ValueError: it is not; the text names the forms.
    """
    parse_duration(text)
    return text


def docker_words(line: CommandLine, request: Request, around: Surroundings) -> list[str]:
    """Return the `docker run` command: the user's words, and right in front of IMAGE ours.

    Raises:
        UsageError: as `check`, or the image uses the path where ConvGPU's volume has to be.
    """
    check(line)
    if any(posixpath.normpath(path) == MOUNT_PATH for path in around.image_volumes):
        raise UsageError(
            f"the image {line.image[0]} declares a volume of its own at {MOUNT_PATH}, where ConvGPU's has "
            "to be: build the image without that VOLUME line"
        )
    if around.occupied:
        raise UsageError(
            f"the image {line.image[0]} has files of its own at {MOUNT_PATH}, where ConvGPU's volume has to be, "
            "which would hide them: build the image with them elsewhere"
        )
    words = ["docker", "run", *line.docker]
    if around.library_path is None and not any(o.name in {"gpus", "device", "runtime"} for o in line.options):
        words += ["--gpus", "all"]
    words += ["--mount", _mount(request), "-e", _joined("LD_PRELOAD", LIBRARY, line, around)]
    if around.library_path is not None:
        words += ["-e", _joined("LD_LIBRARY_PATH", around.library_path, line, around)]
    # The user's `--` is kept: without it an image named like an option would be read as one.
    return [*words, *(["--"] if line.image[0].startswith("-") else []), *line.image]


def check(line: CommandLine) -> None:
    """Check what needs no Engine.

    Raises:
        UsageError: no IMAGE, or something else is mounted where ConvGPU's volume has to be.
    """
    if not line.image:
        raise UsageError(
            "no IMAGE is named. If it is there, an option in front of it took it as its value: "
            "convgpu run --gpu-memory 2g [docker run options] IMAGE [COMMAND]"
        )
    taken = mounts_at(line)
    if taken is not None:
        raise UsageError(
            f"{taken!r} mounts something at {MOUNT_PATH}, where ConvGPU's volume has to be: use another path"
        )


def _mount(request: Request) -> str:
    fields = [
        "type=volume",
        f"volume-driver={request.driver}",
        f"volume-opt=memory={request.memory}",
        *([f"volume-opt=wait={request.wait}"] if request.wait is not None else []),
        f"dst={MOUNT_PATH}",
    ]
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(fields)  # Docker reads it with a CSV reader: commas are quoted
    return row.getvalue()


def _joined(name: str, ours: str, line: CommandLine, around: Surroundings) -> str:
    theirs = environment(line, name, inherited=around.inherited, files=around.env_files, image=around.image_environment)
    return f"{name}={ours}:{theirs}" if theirs else f"{name}={ours}"
