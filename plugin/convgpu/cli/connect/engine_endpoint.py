"""Which Docker Engine is meant: Docker's global options, its environment and its contexts, in Docker's own order."""

from __future__ import annotations

import os

from convgpu.protocol.quick import quick_json
from convgpu.protocol.quick.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any, Final

DEFAULT_HOST: Final = "unix:///var/run/docker.sock"
_META: Final = "convgpu.endpoint"


class Tls(Record):
    """Files of a TLS connection; `verify`: the Engine's certificate is checked."""

    ca: str | None
    cert: str | None
    key: str | None
    verify: bool


class Endpoint(Record):
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
    def path(self) -> str | None:
        """The path of the Engine's UNIX socket, None if it is reached another way."""
        return self.host.removeprefix("unix://") if self.host.startswith("unix://") else None

    @property
    def socket(self) -> Path | None:
        """The same, for whoever does more with it than to connect."""
        from pathlib import Path  # the quick path of `convgpu run` has no time for it

        return None if self.path is None else Path(self.path)


class Options(Record):
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
    import click  # as Path above

    click.get_current_context().meta[_META] = options


def current() -> Endpoint:
    """Return the Engine that this command line and environment mean.

    Raises:
        Unavailable: the context does not exist.
    """
    import click  # as Path above

    context = click.get_current_context(silent=True)
    options = context.meta.get(_META) if context is not None else None
    return resolve(options if isinstance(options, Options) else Options(), os.environ)


def resolve(options: Options, environment: Mapping[str, str]) -> Endpoint:
    """Return the Engine: --host, --context, DOCKER_HOST, DOCKER_CONTEXT, the chosen context, the default.

    Raises:
        Unavailable: the context does not exist.
    """
    if options.host is not None and options.context is not None:
        import click  # only an error needs it

        raise click.UsageError("--host and --context name two Engines: leave one out")
    folder = options.config or environment.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
    if options.host is None and (options.context is not None or not environment.get("DOCKER_HOST")):
        name = options.context or environment.get("DOCKER_CONTEXT") or _chosen(folder)
        if name and name != "default":
            return _context(name, folder, options.flags())
    host = options.host or (options.context is None and environment.get("DOCKER_HOST")) or DEFAULT_HOST
    return Endpoint(host, _tls(options, environment, folder, host), options.flags())


def _load(path: str) -> Any:
    with open(path, "rb") as file:
        return quick_json.loads(file.read())


def _chosen(folder: str) -> str | None:
    """Return the context that `docker context use` chose."""
    try:
        settings = _load(f"{folder}/config.json")
    except (OSError, ValueError):
        return None
    name = settings.get("currentContext") if isinstance(settings, dict) else None
    return name if isinstance(name, str) else None


def _tls(options: Options, environment: Mapping[str, str], folder: str, host: str) -> Tls | None:
    verify = options.tlsverify or bool(environment.get("DOCKER_TLS_VERIFY"))
    if host.startswith("unix://") or not (verify or options.tls):
        return None
    certificates = environment.get("DOCKER_CERT_PATH") or folder

    def file(given: str | None, name: str) -> str | None:
        path = given or f"{certificates}/{name}"
        return path if given or os.path.exists(path) else None

    key = file(options.tlskey, "key.pem")
    return Tls(file(options.tlscacert, "ca.pem"), file(options.tlscert, "cert.pem"), key, verify)


def _context(name: str, folder: str, flags: tuple[str, ...]) -> Endpoint:
    from hashlib import sha256  # contexts are rare

    from convgpu.cli.terminal.errors import Unavailable  # as above

    key = sha256(name.encode()).hexdigest()
    try:
        meta = _load(f"{folder}/contexts/meta/{key}/meta.json")
        endpoint = meta["Endpoints"]["docker"]
        host = str(endpoint["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"there is no Docker context {name!r}.\nSee them with: docker context ls") from error
    files = f"{folder}/contexts/tls/{key}/docker"
    if not os.path.isdir(files):
        return Endpoint(host, None, flags)
    paths = (f"{files}/{name}" for name in _TLS_FILES)
    ca, cert, private = (path if os.path.exists(path) else None for path in paths)
    return Endpoint(host, Tls(ca, cert, private, not endpoint.get("SkipTLSVerify", False)), flags)


_TLS_FILES: Final = ("ca.pem", "cert.pem", "key.pem")
