"""The options that `convgpu run` adds to a `docker run`. Pure."""

from __future__ import annotations

import posixpath

from convgpu.cli.run.csv_row import write_row
from convgpu.cli.run.docker_arguments import CommandLine, UsageError, check, environment, mounts_at
from convgpu.cli.run.gpu_access import Access, parse_count, parse_gpus, without_count
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.labels import USER
from convgpu.protocol.layout import DRIVER_PATH, LIBRARY_PATH, MOUNT_PATH, PRELOAD_PATH
from convgpu.protocol.quick.record import Record
from convgpu.protocol.sizes import parse_share, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

_DIGITS: Final = 9
# A simulated driver comes with the volume: there is no device to ask the Engine for.
SIMULATED: Final = Access((), DRIVER_PATH, "a simulated device, whose driver comes with the volume")


class Request(Record):
    """The options of `convgpu run` itself.

    Attributes:
        memory: option of the volume.
        wait: option of the volume; None: no deadline.
        driver: the plugin's name.
        gpus: Docker's `--gpus`, as it was written; None: one that the scheduler chooses.
        priority: option of the volume; None: the scheduler's default.
        verb: `run` or `create`.
        suspend: option of the volume; None: the memory never leaves the GPUs.
        backing: option of the volume; None: the memory is the GPU's own.
        admit: option of the volume; None: the scheduler's default.
        gang: option of the volume; None: no gang.
    """

    memory: str
    wait: str | None
    driver: str
    gpus: str | None = None
    priority: str | None = None
    verb: str = "run"
    suspend: str | None = None
    backing: str | None = None
    admit: str | None = None
    gang: str | None = None

    @property
    def devices(self) -> tuple[str, ...] | None:
        """Indices or UUIDs of the GPUs; None for all. Limits per GPU name them as well."""
        if self.gpus is None and ":" in self.memory:
            return tuple(part.rpartition(":")[0].strip() for part in self.memory.split(","))
        return parse_gpus(self.gpus)

    @property
    def option(self) -> str | None:
        """The volume's option `gpus`; None where the limits name the GPUs, or nobody does."""
        if (count := parse_count(self.gpus)) is not None:
            return f"any:{count}" if count > 1 else "any"
        if self.devices is None:
            return None if self.gpus is None else "all"
        return ",".join(self.devices) if ":" not in self.memory else None

    @property
    def docker_gpus(self) -> str:
        """The value of Docker's `--gpus`: all, where the scheduler chooses.

        A list of devices is quoted, because it contains commas.
        """
        if self.gpus is not None:
            return without_count(self.gpus) if parse_count(self.gpus) is not None else self.gpus
        if self.devices is None:
            return "all"
        return f'"device={",".join(self.devices)}"'


class Surroundings(Record):
    """The environment of a `docker run` beside its command line.

    Attributes:
        access: how the container gets at the GPUs.
        preload: file on the Engine's host for /etc/ld.so.preload.
        inherited: the caller's environment.
        docker: the program, with the options that name the Engine.
        env_files: the text of each file named by --env-file, in order.
        image_environment: `NAME=VALUE` rows of the image; empty while the Engine does not have the image.
        image_volumes: the paths at which the image wants volumes.
        occupied: the image has something of its own where our volume has to be.
        user: who runs the container; empty: it gets no label of a user.
    """

    access: Access
    preload: str
    inherited: Mapping[str, str]
    docker: Sequence[str] = ("docker",)
    env_files: Sequence[str] = ()
    image_environment: Sequence[str] = ()
    image_volumes: Sequence[str] = ()
    occupied: bool = False
    user: str = ""


def check_memory(text: str) -> str:
    """Return `text` if it is a limit: a size or a share, or `UUID:SIZE,UUID:SIZE,...`.

    Raises:
        ValueError: it is not; the text names the forms.
    """
    for part in text.split(","):
        uuid, colon, size = part.rpartition(":")
        if (colon and not uuid) or ("," in text and not colon):
            raise ValueError(f"{text!r} is not a limit: write one size, or GPU-uuid:SIZE,GPU-uuid:SIZE")
        if parse_share(size) is None:
            parse_size(size)
    return text


def check_wait(text: str) -> str:
    """Return `text` if it is a duration as the option `wait` of a volume takes it.

    Raises:
        ValueError: it is not; the text names the forms.
    """
    parse_duration(text)
    return text


def check_priority(text: str) -> str:
    """Return `text` if it is a whole number.

    Raises:
        ValueError: it is not.
    """
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        raise ValueError(f"{text!r} is not a priority: write a whole number; higher ones are served first")
    return str(int(text))


def docker_words(line: CommandLine, request: Request, around: Surroundings) -> list[str]:
    """Return the docker command: the user's words, and right in front of IMAGE ours.

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
    words = [*around.docker, request.verb, *line.docker]
    if not chooses_gpus(line):
        words += around.access.words
    words += ["--mount", _mount(request)]
    if mounts_at(line, PRELOAD_PATH) is None:
        words += ["--mount", write_row(["type=bind", f"src={around.preload}", f"dst={PRELOAD_PATH}", "readonly"])]
    words += ["-e", _joined("LD_PRELOAD", LIBRARY_PATH, line, around)]
    if around.access.library_path is not None and not chooses_gpus(line):
        words += ["-e", _joined("LD_LIBRARY_PATH", around.access.library_path, line, around)]
    if around.user and not _is_labelled(line):
        words += ["--label", f"{USER}={around.user}"]
    # The user's `--` stays: without it an image named like an option would be read as one.
    return [*words, *(["--"] if line.image[0].startswith("-") else []), *line.image]


def chooses_gpus(line: CommandLine) -> bool:
    """Say whether the user's own options give the container its GPUs."""
    return any(o.name == "runtime" or (o.name == "device" and "nvidia" in (o.value or "")) for o in line.options)


def _is_labelled(line: CommandLine) -> bool:
    """Say whether the user's own words name the user already."""
    return any(o.name == "label" and (o.value or "").partition("=")[0] == USER for o in line.options)


def explain(line: CommandLine, request: Request, around: Surroundings) -> list[str]:
    """Return the lines that explain what `docker_words` adds."""
    count = parse_count(request.gpus) or (1 if request.gpus is None else 0)
    chosen = f"{count} GPUs that the scheduler chooses" if count > 1 else "a GPU that the scheduler chooses"
    gpus = f"GPU {', '.join(request.devices)}" if request.devices else chosen if count else "all GPUs"
    limit = f"limit {request.memory}" + ("" if ":" in request.memory else f" on {gpus}")
    limit += f", waits at most {request.wait}" if request.wait is not None else ""
    limit += f", priority {request.priority}" if request.priority is not None else ""
    limit += f", admitted as a {request.admit}" if request.admit == "whole" else ""
    limit += f", gang {request.gang}" if request.gang is not None else ""
    limit += ", its memory may leave for others" if request.suspend == "auto" else ""
    limit += ", managed memory, alone on its GPU while it runs" if request.backing == "unified" else ""
    preloaded = mounts_at(line, PRELOAD_PATH) is None
    return [
        f"volume at {MOUNT_PATH}: {limit}",
        f"{PRELOAD_PATH}: the library in every program, docker exec too"
        if preloaded
        else f"{PRELOAD_PATH}: yours; let it name {LIBRARY_PATH} too, or docker exec with a clean environment escapes",
        f"LD_PRELOAD: {LIBRARY_PATH}",
        f"GPUs: {'by your own options' if chooses_gpus(line) else around.access.how}",
    ]


def _mount(request: Request) -> str:
    options = {
        "memory": request.memory,
        "gpus": request.option,
        "wait": request.wait,
        "priority": request.priority,
        "suspend": request.suspend,
        "backing": request.backing,
        "admit": request.admit,
        "gang": request.gang,
    }
    fields = ["type=volume", f"volume-driver={request.driver}"]
    fields += [f"volume-opt={name}={value}" for name, value in options.items() if value is not None]
    return write_row([*fields, f"dst={MOUNT_PATH}"])


def _joined(name: str, ours: str, line: CommandLine, around: Surroundings) -> str:
    theirs = environment(line, name, inherited=around.inherited, files=around.env_files, image=around.image_environment)
    return f"{name}={ours}:{theirs}" if theirs else f"{name}={ours}"
