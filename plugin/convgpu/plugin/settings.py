"""Settings of the plugin: environment variables `CONVGPU_*`, each with its default here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from convgpu.protocol import journal

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_NAMES: Final = ("name", "directory", "socket", "engine", "devices", "read_only", "rules", "log", "log_format")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the plugin can be told.

    Attributes:
        name: of the plugin in the Engine, as users write it behind `volume-driver=`.
        directory: the scheduler's directory; `admin.sock` and the volumes lie in it.
        socket: where the Engine looks for the plugin.
        engine: the Engine's own socket; a folder above it is mounted, because the socket comes anew with each Engine.
        devices: what the scheduler hands out; see `convgpud --help`.
        read_only: whether containers get their folders read-only: yes, no, or auto (not with simulated devices, whose
            driver writes beside itself).
        rules: the file with the rules of the site; need not be there.
        log: the least level that is logged.
        log_format: of its lines: text, or json.
    """

    name: str = "convgpu"
    directory: Path = Path("/var/lib/convgpu")
    socket: Path = Path("/run/docker/plugins/convgpu.sock")
    engine: Path = Path("/host/run/docker.sock")
    devices: str = "nvml"
    read_only: str = "auto"
    rules: Path = Path("/host/etc/convgpu/rules.toml")
    log: str = "info"
    log_format: str = "text"

    @property
    def admin_socket(self) -> Path:
        """The scheduler's own socket."""
        return self.directory / "admin.sock"

    @property
    def folders(self) -> Path:
        """Where the scheduler makes the containers' folders."""
        return self.directory / "containers"

    @property
    def view(self) -> Path | None:
        """Where containers get them from, read-only; None if as they are."""
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
    given = {name: environment.get(_variable(name), "") for name in _NAMES}
    settings = Settings()
    if given["name"]:
        settings = replace(settings, name=given["name"])
    if given["directory"]:
        settings = replace(settings, directory=_absolute("directory", given["directory"]))
    if given["socket"]:
        settings = replace(settings, socket=_absolute("socket", given["socket"]))
    if given["engine"]:
        settings = replace(settings, engine=_absolute("engine", given["engine"]))
    if given["devices"]:
        settings = replace(settings, devices=given["devices"])  # the scheduler checks them
    if given["read_only"]:
        settings = replace(settings, read_only=_one_of("read_only", given["read_only"], ("auto", "yes", "no")))
    if given["rules"]:
        settings = replace(settings, rules=_absolute("rules", given["rules"]))
    if given["log"]:
        settings = replace(settings, log=_one_of("log", given["log"], LOG_LEVELS))
    if given["log_format"]:
        settings = replace(settings, log_format=_one_of("log_format", given["log_format"], journal.FORMATS))
    return settings


def _variable(name: str) -> str:
    return f"CONVGPU_{name.upper()}"


def _absolute(name: str, text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(f"{_variable(name)}={text}: must be an absolute path")
    return path


def _one_of(name: str, text: str, known: Sequence[str]) -> str:
    word = text.lower()
    if word not in known:
        raise ValueError(f"{_variable(name)}={text}: must be one of {', '.join(known)}")
    return word
