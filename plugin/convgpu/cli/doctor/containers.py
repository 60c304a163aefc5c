"""The doctor's own containers: the host's Python in an image that is empty, or in one that the user names."""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from convgpu.cli.connect.engine import Engine
from convgpu.cli.run.docker_arguments import scan
from convgpu.cli.run.injection import Request
from convgpu.cli.run.preparation import prepare
from convgpu.cli.terminal.errors import Unavailable
from convgpu.cli.terminal.signals import unbroken
from convgpu.protocol.layout import MOUNT_PATH

_IMAGE: Final = "convgpu/doctor"
_FOLDERS: Final = ("usr", "etc", "tmp", "dev", "proc", "sys", "run")
_LINKS: Final = ("bin", "sbin", "lib", "lib64")
_TIMEOUT: Final = 60.0  # seconds for a command of docker
_PROBE: Final = Path(__file__).with_name("probe.py")


class ProbeFailed(Exception):  # noqa: N818 - a finding
    """A container of the doctor did not do what it should; the text is one line."""


class Containers:
    """Starts probes as `convgpu run` starts containers. Used as a context manager, which leaves nothing behind.

    Args:
        engine: where.
        driver: the plugin's name.
        image: with python3 in it; None: an empty one with the host's /usr.
    """

    def __init__(self, engine: Engine, driver: str, image: str | None) -> None:
        self._engine = engine
        self._driver = driver
        self._image = image or _IMAGE
        self._borrowed = image is None
        self._names: list[str] = []

    def __enter__(self) -> Self:
        if self._borrowed:
            if self._engine.endpoint.socket is None or not Path("/usr/bin/python3").exists():
                raise Unavailable(
                    "the doctor's containers use /usr/bin/python3 of the Engine's host, which is not there.\n"
                    "Run this on the Engine's host, or name an image that has python3: convgpu doctor --image IMAGE"
                )
            self._engine.client.api.import_image_from_data(_empty_root(), repository=_IMAGE)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.remove_containers(self._names)
        if self._borrowed:
            self._engine.client.images.remove(_IMAGE, force=True)

    @property
    def image(self) -> str:
        """The image of the probes."""
        return self._image

    def start(self, name: str, memory: str, *words: str, suspend: str | None = None) -> str:
        """Start a container with a limit and return its name; `suspend`: option of its volume.

        Raises:
            ProbeFailed: docker said no.
        """
        container = f"convgpu-doctor-{os.getpid()}-{name}"
        self._names.append(container)
        usr = ["-v", "/usr:/usr:ro"] if self._borrowed else []
        silent = ["-e", "CONVGPU_NOTICE=never"]  # what a container of ours says on stderr is a failure
        options = ["-d", "-i", "--name", container, "--network", "none", *usr, *silent, "--entrypoint", self._python]
        line = scan([*options, self._image, *self._arguments(words)], {})
        command, _ = prepare(line, Request(memory, None, self._driver, suspend=suspend), self._engine)
        with unbroken():
            done = _run(command, start_new_session=True)  # Ctrl-C is for us
        if done.returncode != 0:
            raise ProbeFailed(_last_line(done.stderr))
        return container

    def execute(self, container: str, *words: str) -> list[dict[str, Any]]:
        """Run a probe in a container that runs, by `docker exec`, without LD_PRELOAD in its environment."""
        without = ["exec", container, *self._python_without_preload(), *self._arguments(words)]
        done = _run(self._docker(*without))
        reports = _reports(done.stdout)
        if done.returncode != 0 and not reports:
            raise ProbeFailed(_last_line(done.stderr))
        return reports

    def reports(self, container: str) -> list[dict[str, Any]]:
        """Return what the probe in a container has said so far."""
        done = _run(self._docker("logs", container))
        found = _reports(done.stdout)
        if not found and done.stderr.strip():
            raise ProbeFailed(_last_line(done.stderr))
        return found

    def running(self, container: str) -> bool:
        """Say whether it runs."""
        return bool(self._engine.get(f"/containers/{container}/json")["State"]["Running"])

    def volume(self, container: str) -> str:
        """Return the name of its ConvGPU volume."""
        mounts = self._engine.get(f"/containers/{container}/json")["Mounts"]
        return next(str(mount["Name"]) for mount in mounts if mount["Destination"] == MOUNT_PATH)

    def remove(self, container: str) -> None:
        """End and remove it."""
        self._engine.remove_containers([container])

    def _docker(self, *words: str) -> list[str]:
        return ["docker", *self._engine.endpoint.flags, *words]

    @property
    def _python(self) -> str:
        return "/usr/bin/python3" if self._borrowed else "python3"

    def _python_without_preload(self) -> list[str]:
        return ["/usr/bin/env", "-u", "LD_PRELOAD", self._python]

    @staticmethod
    def _arguments(words: Sequence[str]) -> list[str]:
        return ["-I", "-S", "-c", _PROBE.read_text(encoding="utf-8"), *words]


def _run(command: Sequence[str], *, start_new_session: bool = False) -> subprocess.CompletedProcess[str]:
    """Run docker; raise ProbeFailed where it does not end, as that of an Engine that hangs."""
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            start_new_session=start_new_session,
        )
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(
            f"docker did not end within {_TIMEOUT:g} s. Does the Engine answer? Type: docker ps"
        ) from error


def _empty_root() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name in _LINKS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
    return data.getvalue()


def _reports(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and "docker run --help" not in line]
    return lines[-1] if lines else "it ended without a word"
