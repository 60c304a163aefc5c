"""`convgpu dashboard`: the page, on loopback, for as long as the command runs."""

import secrets
import threading
import webbrowser
from functools import partial
from pathlib import Path
from typing import Final

import click

from convgpu.cli.connect.discovery import find_socket
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import PluginTransport, Scheduler
from convgpu.cli.serve.feed import Feed
from convgpu.cli.serve.page_server import PageServer
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import plugin_socket, volume_driver

_HELP: Final = """Show in a browser who has the GPU memory, who waits and why, and what was decided last.

Prints the address of a page on 127.0.0.1 and serves it until it is interrupted (Ctrl-C). The page is read-only; its
address holds a secret that is another one each time. From another machine: ssh -L PORT:127.0.0.1:PORT HOST, with
--port PORT here, then open the address there.
"""


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1; by default any that is free.")
@click.option("--open", "browse", is_flag=True, help="Open the page in this user's browser.")
@plugin_socket
@volume_driver
def dashboard(*, port: int, browse: bool, socket: Path | None, driver: str) -> None:
    """Serve the page until interrupted."""
    http = RequestsHttp(socket or find_socket(driver, RequestsHttp))
    scheduler = Scheduler(PluginTransport(http))
    scheduler.devices()  # now, so that a plugin that does not answer is an error of this command
    feed = Feed(scheduler)
    try:
        server = PageServer(port, secrets.token_urlsafe(24), partial(http.ask, "GET"), feed)
    except OSError as error:
        raise Unavailable(f"127.0.0.1:{port} cannot be had ({error}).\nName another --port, or none.") from error
    threading.Thread(target=feed.run, daemon=True).start()
    click.echo(server.url)
    click.echo("Open it in a browser on this machine. Ctrl-C ends it.", err=True)
    if browse:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("", err=True)
    finally:
        feed.close()
        server.server_close()
