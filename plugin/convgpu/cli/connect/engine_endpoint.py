"""Which Docker Engine is meant: Docker's global options, its environment and its contexts, in Docker's own order."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from convgpu.cli.terminal.errors import Unavailable

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
_META: Final = "convgpu.endpoint"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection; `verify`: the Engine's certificate is checked."""

    ca: str | None
    cert: str | None
    key: str | None
    verify: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Engine.

    Attributes:
        host: `unix://PATH`, `tcp://HOST:PORT` or `ssh://HOST`.
        tls: None without TLS.
        flags: the global options that make `docker` mean the same Engine.
    """

    host: str = DEFAULT_HOST
    tls: Tls | None = None
    flags: tuple[str, ...] = ()

    @property
    def socket(self) -> Path | None:
        """The Engine's UNIX socket, None if it is reached another way."""
        return Path(self.host.removeprefix("unix://")) if self.host.startswith("unix://") else None


@dataclass(frozen=True, slots=True)
class Options:
    """Docker's global options as the user gave them; None or False where not."""

    host: str | None = None
    context: str | None = None
    tls: bool = False
    tlsverify: bool = False
    tlscacert: str | None = None
    tlscert: str | None = None
    tlskey: str | None = None
    config: str | None = None

    def flags(self) -> tuple[str, ...]:
        """Return them as words for `docker`."""
        words: list[str] = []
        for name in ("config", "host", "context", "tlscacert", "tlscert", "tlskey"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name}", value]
        words += [f"--{name}" for name in ("tls", "tlsverify") if getattr(self, name)]
        return tuple(words)


def remember(options: Options) -> None:
    """Keep the options of this command line for `current`."""
    click.get_current_context().meta[_META] = options


def current() -> Endpoint:
    """Return the Engine that this command line and environment mean.

    Raises:
        Unavailable: the context does not exist.
    """
    context = click.get_current_context(silent=True)
    options = context.meta.get(_META) if context is not None else None
    return resolve(options if isinstance(options, Options) else Options(), os.environ)


def resolve(options: Options, environment: Mapping[str, str]) -> Endpoint:
    """Return the Engine: --host, --context, DOCKER_HOST, DOCKER_CONTEXT, the chosen context, the default.

    Raises:
        Unavailable: the context does not exist.
    """
    if options.host is not None and options.context is not None:
        raise click.UsageError("--host and --context name two Engines: leave one out")
    folder = Path(options.config or environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if options.host is None and (options.context is not None or not environment.get("DOCKER_HOST")):
        name = options.context or environment.get("DOCKER_CONTEXT") or _chosen(folder)
        if name and name != "default":
            return _context(name, folder, options.flags())
    host = options.host or (options.context is None and environment.get("DOCKER_HOST")) or DEFAULT_HOST
    return Endpoint(host, _tls(options, environment, folder, host), options.flags())


def _chosen(folder: Path) -> str | None:
    """Return the context that `docker context use` chose."""
    try:
        settings = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    name = settings.get("currentContext") if isinstance(settings, dict) else None
    return name if isinstance(name, str) else None


def _tls(options: Options, environment: Mapping[str, str], folder: Path, host: str) -> Tls | None:
    verify = options.tlsverify or bool(environment.get("DOCKER_TLS_VERIFY"))
    if host.startswith("unix://") or not (verify or options.tls):
        return None
    certificates = Path(environment.get("DOCKER_CERT_PATH") or folder)

    def file(given: str | None, name: str) -> str | None:
        path = given or str(certificates / name)
        return path if given or Path(path).exists() else None

    key = file(options.tlskey, "key.pem")
    return Tls(file(options.tlscacert, "ca.pem"), file(options.tlscert, "cert.pem"), key, verify)


def _context(name: str, folder: Path, flags: tuple[str, ...]) -> Endpoint:
    from hashlib import sha256  # noqa: PLC0415 - contexts are rare

    key = sha256(name.encode()).hexdigest()
    try:
        meta = json.loads((folder / "contexts/meta" / key / "meta.json").read_bytes())
        endpoint = meta["Endpoints"]["docker"]
        host = str(endpoint["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"there is no Docker context {name!r}.\nSee them with: docker context ls") from error
    files = folder / "contexts/tls" / key / "docker"
    if not files.is_dir():
        return Endpoint(host, None, flags)
    ca, cert, private = (str(files / file) if (files / file).exists() else None for file in _TLS_FILES)
    return Endpoint(host, Tls(ca, cert, private, not endpoint.get("SkipTLSVerify", False)), flags)


_TLS_FILES: Final = ("ca.pem", "cert.pem", "key.pem")
