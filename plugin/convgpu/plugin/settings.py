"""Settings of the plugin: environment variables `CONVGPU_*`, each with its default here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from convgpu.logs.formatter import FORMATS
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.layout import ADMIN_SOCKET_FILE, CONTAINERS_FOLDER, reader_socket

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """The plugin's settings.

    Attributes:
        name: of the plugin in the Engine, as users write it behind `volume-driver=`.
        directory: the scheduler's directory; `admin.sock` and the volumes lie in it.
        socket: where the Engine looks for the plugin.
        engine: the Engine's own socket; a folder above it is mounted, because the socket comes anew with each Engine.
        devices: GPUs that the scheduler manages; see `convgpud --help`.
        read_only: whether containers get their folders read-only: yes, no, or auto (not with simulated devices, whose
            driver writes beside itself).
        rules: the file with the rules of the site; need not be there.
        jobs: folder of the shares of Slurm's jobs on this host; need not be there.
        keep: how long a volume that was made for one container stays after its last use.
        log: the lowest level that is logged.
        readers: the group that may read without root: auto, a name, a number, or none.
        log_format: of its lines: text, or json.
    """

    name: str = "convgpu"
    directory: Path = Path("/var/lib/convgpu")
    socket: Path = Path("/run/docker/plugins/convgpu.sock")
    engine: Path = Path("/host/run/docker.sock")
    devices: str = "nvml"
    read_only: str = "auto"
    rules: Path = Path("/host/etc/convgpu/rules.toml")
    jobs: Path = Path("/host/run/convgpu/jobs")
    keep: str = "1h"
    readers: str = "auto"
    log: str = "info"
    log_format: str = "text"

    @property
    def admin_socket(self) -> Path:
        """The scheduler's own socket."""
        return self.directory / ADMIN_SOCKET_FILE

    @property
    def reader_socket(self) -> Path:
        """Where members of the readers' group ask, beside the Engine's socket."""
        return Path(reader_socket(str(self.engine.parent), self.name))

    @property
    def folders(self) -> Path:
        """The scheduler's folders of the containers."""
        return self.directory / CONTAINERS_FOLDER

    @property
    def read_only_folders(self) -> Path | None:
        """Where they are mounted read-only for containers; None: containers get the folders themselves."""
        simulated = self.devices.startswith("simulated:")
        read_only = self.read_only == "yes" or (self.read_only == "auto" and not simulated)
        return self.directory / "volumes" if read_only else None

    def environment(self) -> dict[str, str]:
        """Return the variables that give a child process the same settings."""
        return {_variable(field.name): str(getattr(self, field.name)) for field in fields(self)}


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings that the environment asks for; an empty variable means the default.

    Raises:
        ValueError: a variable has a value that is not possible; one line that names it.
    """
    given = {name: environment.get(_variable(name), "") for name in _PARSERS}
    return Settings(**{name: _PARSERS[name](name, text) for name, text in given.items() if text})


def read_possible_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings that the environment asks for, without those that are not possible."""
    possible = dict(environment)
    for name in _PARSERS:
        try:
            read_settings({_variable(name): possible.get(_variable(name), "")})
        except ValueError:
            del possible[_variable(name)]
    return read_settings(possible)


def _variable(name: str) -> str:
    return f"CONVGPU_{name.upper()}"


def _absolute(name: str, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{_variable(name)}={text}: must be an absolute path")
    return path


def _text(_name: str, text: str) -> str:
    return text


def _duration(name: str, text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{_variable(name)}: {error}") from error
    return text


def _one_of(*known: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        value = text.lower()
        if value not in known:
            raise ValueError(f"{_variable(name)}={text}: must be one of {', '.join(known)}")
        return value

    return parse


_PARSERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "name": _text,
    "directory": _absolute,
    "socket": _absolute,
    "engine": _absolute,
    "devices": _text,  # the scheduler judges it
    "read_only": _one_of("auto", "yes", "no"),
    "rules": _absolute,
    "jobs": _absolute,
    "keep": _duration,
    "readers": _text,
    "log": _one_of(*LOG_LEVELS),
    "log_format": _one_of(*FORMATS),
}
