"""`convgpu metrics`: the plugin's figures for Prometheus, once or for as long as the command runs.

The plugin has no network: Prometheus cannot reach it. This command, on the host, can.
"""

import os
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import Final

import click

from convgpu.cli.connect.discovery import find_socket
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.unix_http import HttpClient
from convgpu.cli.serve.http_server import BoundedServer, ReadOnlyHandler
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import plugin_socket, volume_driver

_HELP: Final = """Print the figures of the plugin in Prometheus' text format, or serve them.

\b
  convgpu metrics                                   look at them
  convgpu metrics --listen 127.0.0.1:9870           for a scrape_config
  convgpu metrics --output DIR/convgpu.prom         for the textfile collector of node_exporter, by a timer
"""


def _address(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.BadParameter(f"{text}: must be ADDRESS:PORT, for example 127.0.0.1:9870")
    return host.strip("[]"), int(port)


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option(
    "--listen",
    callback=_address,
    metavar="ADDRESS:PORT",
    help="Serve /metrics there until interrupted. Whoever reaches the address can read names of containers and images.",
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, all at once.")
@plugin_socket
@volume_driver
def metrics(*, listen: tuple[str, int] | None, output: Path | None, socket: Path | None, driver: str) -> None:
    """Print, write or serve the figures."""
    http = RequestsHttp(socket or find_socket(driver, RequestsHttp))
    text = _read(http)  # now, so that a plugin that does not answer is an error at once
    if output is not None:
        _replace(output, text)
    if listen is not None:
        _serve(listen, http)
    elif output is None:
        click.echo(text.decode(), nl=False)


def _read(http: HttpClient) -> bytes:
    try:
        answer = http.ask("GET", "/metrics")
    except OSError as error:
        raise Unavailable(
            f"the plugin does not answer ({error}).\nSee whether it is enabled: docker plugin ls"
        ) from error
    if answer.status != HTTPStatus.OK:
        raise Unavailable(f"the plugin answered {answer.status}; is it older than this command? Upgrade it.")
    return answer.content


def _replace(path: Path, text: bytes) -> None:
    """Write a file as a whole: node_exporter must never read half of it."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        os.replace(file.name, path)  # noqa: PTH105 - the pair of the name above
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error}") from error


class _Server(BoundedServer):
    http: HttpClient


class _Handler(ReadOnlyHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - its name in the library
        """Answer Prometheus."""
        if self.path.partition("?")[0] != "/metrics":
            self.say(404, "ask for /metrics")
            return
        try:
            answer = self.server.http.ask("GET", "/metrics")
        except OSError as error:
            self.say(502, f"the plugin does not answer ({error})")
            return
        self.send(answer.status, {"Content-Type": answer.headers.get("content-type", "text/plain")}, answer.content)


def _serve(address: tuple[str, int], http: HttpClient) -> None:
    try:
        server = _Server(address, _Handler)
    except OSError as error:
        raise Unavailable(f"{address[0]}:{address[1]} cannot be had ({error}); name another --listen.") from error
    server.http = http
    click.echo(f"http://{address[0]}:{server.server_port}/metrics")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("", err=True)
    finally:
        server.server_close()
