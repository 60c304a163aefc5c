"""`convgpu dashboard`: the page, on loopback, for as long as the command runs."""

import os
import re
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
from convgpu.cli.serve.questions import Questions
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import plugin_socket, volume_driver

_HELP: Final = """Show in a browser who has the GPU memory, who waits and why, and what was decided last.

Prints the address of a page on 127.0.0.1 and serves it until it is interrupted (Ctrl-C). The page is read-only; its
address holds a secret that is another one each time, or that of --token-file. From another machine: ssh -L
PORT:127.0.0.1:PORT HOST, with --port PORT here, then open the address there. As a service for a team, behind a proxy
with TLS: docs/monitoring.md.
"""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")


@click.command(help=_HELP, epilog=EXIT_CODES)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1; by default any that is free.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Holds the secret of the address, so that it stays the same; is made if it is not there.",
)
@click.option("--open", "browse", is_flag=True, help="Open the page in this user's browser.")
@plugin_socket
@volume_driver
def dashboard(*, port: int, token_file: Path | None, browse: bool, socket: Path | None, driver: str) -> None:
    """Serve the page until interrupted."""
    http = RequestsHttp(socket or find_socket(driver, RequestsHttp))
    scheduler = Scheduler(PluginTransport(http))
    scheduler.devices()  # now, so that a plugin that does not answer is an error of this command
    feed = Feed(scheduler)
    token = secrets.token_urlsafe(24) if token_file is None else read_token(token_file)
    try:
        server = PageServer(port, token, partial(http.ask, "GET"), feed, Questions(scheduler, feed))
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


def read_token(path: Path) -> str:
    """Return the secret of a file, which is made with a new one if it is not there; only its owner may read it.

    Raises:
        Unavailable: the file cannot be made or read, others may read it, or what it holds is no secret.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(secrets.token_urlsafe(24) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise Unavailable(f"{path} cannot be made ({error.strerror}).\nName another --token-file.") from error
    try:
        text, mode = path.read_text("ascii").strip(), path.stat().st_mode
    except (OSError, ValueError) as error:
        raise Unavailable(f"{path} cannot be read ({error}).\nName another --token-file.") from error
    if mode & 0o077:
        raise Unavailable(f"{path} can be read by others.\nType: chmod 600 {path}")
    if not _TOKEN.fullmatch(text):
        raise Unavailable(
            f"{path} holds no secret of 16 to 128 letters, digits, - and _.\nRemove it: a new one is made."
        )
    return text
