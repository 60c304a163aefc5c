"""`convgpu policy check` and `policy test`: the rules of a site, tried without an Engine."""

import base64
import binascii
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.facts.owners import Owners
from convgpu.authz.judge import Judge
from convgpu.authz.ports import Document, HostFacts, Ports
from convgpu.authz.requests.callers import LOCAL, caller
from convgpu.authz.requests.routes import route
from convgpu.authz.site.rules import Rules, RulesError, parse_rules
from convgpu.authz.verdict import Denied, Verdict
from convgpu.cli.terminal.errors import EXIT_CODES, Refused
from convgpu.cli.terminal.options import volume_driver
from convgpu.protocol.records import Container, Device

_CHECK: Final = """Check a file with the rules of a site; a mistake is shown with its line."""

_TEST: Final = """Tell what the rules in FILE say to a request, which is read from stdin. No Engine is asked.

\b
The request is one of
  the body of POST /containers/create
  what `docker inspect CONTAINER` prints: judged as its start
  what the Engine asks a plugin: RequestMethod, RequestUri, RequestBody (base64, or JSON), User
Ends with 0 if it may pass, with 1 if it is refused.
"""

_CREATE: Final = "/containers/create"
_START: Final = "/containers/inspected/start"

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command("check", help=_CHECK, epilog=EXIT_CODES)
@file_argument
def check(file: Path) -> None:
    """Check a file."""
    rules = _read(file)
    bounds = len(rules.users) + len(rules.labels)
    click.echo(
        f"{file} is good: mode {rules.mode}, {len(rules.administrators)} administrators, {bounds} users and labels "
        f"with bounds, {len(rules.exempt)} exemptions."
    )


@click.command("test", help=_TEST, epilog=EXIT_CODES)
@file_argument
@click.option("--user", metavar="NAME", help="Who asks: the common name of a certificate; default local.")
@volume_driver
def test(file: Path, user: str | None, driver: str) -> None:
    """Judge a request."""
    rules = _read(file)
    method, uri, body, asked_by, seen = _request(sys.stdin.buffer.read())
    verdict = _judge(rules, driver, method, uri, body, user or asked_by, seen)
    if not verdict.allow:
        raise Refused(
            verdict.message if rules.mode in {"enforce", "strict"} else f"({rules.mode}: it passes) {verdict.message}"
        )
    click.echo(f"It may pass: {verdict.rule}.")


def _read(file: Path) -> Rules:
    try:
        return parse_rules(file.read_text(encoding="utf-8"))
    except RulesError as error:
        raise Refused("\n".join(f"{file}: {line}" for line in str(error).splitlines())) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error


def _request(raw: bytes) -> tuple[str, str, bytes, str, Document | None]:
    """Return method, address, body, user, and what the Engine would say of the container."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return "POST", _CREATE, raw, LOCAL, None  # a body that the judge is to refuse
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        return "POST", _CREATE, raw, LOCAL, None
    if "RequestUri" in document:
        return _question(document)
    if "HostConfig" in document and "Config" in document:
        return "POST", _START, b"", LOCAL, document
    return "POST", _CREATE, raw, LOCAL, None


def _question(document: Mapping[str, Any]) -> tuple[str, str, bytes, str, Document | None]:
    body = document.get("RequestBody") or ""
    if isinstance(body, str):
        try:
            body = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refused(f"RequestBody is neither base64 nor a JSON object: {error}") from error
    else:
        body = json.dumps(body).encode()
    method, uri = str(document.get("RequestMethod") or "POST"), str(document["RequestUri"])
    user = caller(str(document.get("User") or ""), str(document.get("UserAuthNMethod") or ""))
    return method, uri, body, user, None


def _judge(rules: Rules, driver: str, method: str, uri: str, body: bytes, user: str, seen: Document | None) -> Verdict:
    try:
        call = route(method, uri, strict=rules.strict_list is not None)
    except Denied as denied:
        return denied.refusal.verdict()
    if call is None:
        return Verdict(allow=True, rule="not-judged")
    if user in rules.administrators:
        return Verdict(allow=True, rule="administrator")
    with tempfile.TemporaryDirectory() as directory:
        ports = Ports(_EmptyEngine(seen), HostDevices(lambda: Path("/")), _EmptyScheduler())
        judge = Judge(driver, ports, Owners(Path(directory) / "owners.json"))
        return judge.judge(call, body, user, rules)


class _EmptyEngine:
    """An Engine that has nothing but the container that was given."""

    def __init__(self, seen: Document | None) -> None:
        self._seen = seen

    def container(self, _name: str) -> Document | None:
        return self._seen

    def container_within(self, _name: str, _seconds: float) -> Document | None:
        return self._seen

    def volume(self, _name: str) -> Document | None:
        return None

    def image(self, _name: str) -> Document | None:
        return None

    def service(self, _name: str) -> Document | None:
        return None

    def prepared(self, _name: str) -> Document | None:
        return None

    def states(self) -> Mapping[str, str]:
        return {}

    def id_of(self, _name: str) -> str | None:
        return None

    def facts(self) -> HostFacts:
        return HostFacts(default_runtime="runc", go="go1.22.4")


class _EmptyScheduler:
    """A scheduler that knows no volume."""

    def find(self, _volume: str) -> Container | None:
        return None

    def all(self) -> list[Container]:
        return []

    def devices(self) -> Sequence[Device]:
        return ()

    def set_limit(self, volume: str, memory: str) -> None:
        """Nothing to set it on."""
