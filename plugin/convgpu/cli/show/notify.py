"""`convgpu notify`: tells others of events, by a webhook or a command; it is no part of the scheduler's process."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.completion import complete_container
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.connect.scheduler import Scheduler
from convgpu.cli.connect.unix_http import causes
from convgpu.cli.show import event_text
from convgpu.cli.show.events import Names, kind_option
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable
from convgpu.cli.terminal.options import checked, directory, volume_driver
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.event_kinds import EventKind
from convgpu.protocol.records import Event

_HELP: Final = """Tell others when an allocation is paused, granted or rejected: by a webhook, a command, or both.

Runs until it is interrupted. The webhook gets a POST with the object of `convgpu events --json`, and `text` for people.
The command is one of the shell; it gets the same on its standard input, and CONVGPU_KIND, CONVGPU_CONTAINER and
CONVGPU_TEXT in its environment. One that fails or hangs is given up after --timeout, and said on stderr; the scheduler
waits for none of them, and the containers neither.

\b
  convgpu notify --url https://chat.example/hook --kind rejected
  convgpu notify train --command 'notify-send "$CONVGPU_CONTAINER" "$CONVGPU_TEXT"'
"""

_KINDS: Final = (EventKind.PAUSED, EventKind.GRANTED, EventKind.REJECTED)
_STEP: Final = 0.5  # seconds between two questions
_WORKERS: Final = 4  # notices that are on their way at once
_MOST: Final = 200  # notices that wait; of more the oldest are dropped
_UNANSWERED: Final = 16  # notices for which a webhook that hangs keeps a thread
_ERROR: Final = 400

Send = Callable[[dict[str, Any]], None]
"""Sends a notice; OSError says why it failed."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs notices to a URL."""

    url: str
    timeout: float
    _asked: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_UNANSWERED))

    def __call__(self, notice: dict[str, Any]) -> None:
        """Send a notice; see `Send`. Errors do not show the path, a secret with many."""
        if not self._asked.acquire(blocking=False):
            raise TimeoutError(f"{self._host} still answers {_UNANSWERED} others: this notice is dropped")
        done: Future[None] = Future()
        threading.Thread(target=self._work, args=(notice, done), daemon=True).start()
        try:
            done.result(self.timeout)
        except TimeoutError as error:
            raise TimeoutError(f"{self._host} did not answer within {self.timeout:g} s") from error

    @property
    def _host(self) -> str:
        return "/".join(self.url.split("/", 3)[:3])

    def _work(self, notice: dict[str, Any], done: "Future[None]") -> None:
        """Post in a thread of its own: a server that sends a byte now and then never exceeds a socket's timeout."""
        try:
            self._post(notice)
            done.set_result(None)
        except Exception as error:
            done.set_exception(error)
        finally:
            self._asked.release()

    def _post(self, notice: dict[str, Any]) -> None:
        """Wait for the status; the answer's body is not read."""
        import requests  # noqa: PLC0415 - a command needs none

        host = self._host
        try:
            answer = requests.post(self.url, json=notice, timeout=self.timeout, stream=True, allow_redirects=False)
        except requests.Timeout as error:
            raise TimeoutError(f"{host} did not answer within {self.timeout:g} s") from error
        except requests.ConnectionError as error:
            reasons = [getattr(each, "strerror", None) for each in causes(error)]
            reason = next(filter(None, reversed(reasons)), "no connection")
            raise ConnectionError(f"{host} does not answer ({reason})") from error
        with answer as reply:
            if reply.status_code >= _ERROR:
                raise ConnectionError(f"{host} answered {reply.status_code} {reply.reason}")


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a line of the shell for notices."""

    line: str
    timeout: float

    def __call__(self, notice: dict[str, Any]) -> None:
        """Send a notice; see `Send`. What is started is ended with all that it has started."""
        words = {"kind": "kind", "container": "name", "text": "text"}
        more = {f"CONVGPU_{name.upper()}": str(notice.get(key) or "") for name, key in words.items()}
        process = subprocess.Popen(
            ["/bin/sh", "-c", self.line],
            stdin=subprocess.PIPE,
            env={**os.environ, **more},
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(notice).encode(), self.timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise TimeoutError(f"it did not end within {self.timeout:g} s") from None
        if process.returncode != 0:
            raise ChildProcessError(f"it ended with {process.returncode}")


class Dispatcher:
    """Sends notices in threads of its own, at most `_WORKERS` at once; what hangs holds up nobody.

    Args:
        senders: what each notice is given to.
        report: what is said of failures.
    """

    def __init__(self, senders: Mapping[str, Send], report: Callable[[str], None]) -> None:
        self._senders, self._report = senders, report
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(_MOST)
        for _ in range(_WORKERS):
            threading.Thread(target=self._work, daemon=True).start()

    def put(self, notice: dict[str, Any]) -> None:
        """Take a notice, at once."""
        while True:
            try:
                self._waiting.put_nowait(notice)
            except queue.Full:
                with suppress(queue.Empty):
                    self._waiting.get_nowait()
                    self._report("too many events wait: the oldest is dropped")
            else:
                return

    def _work(self) -> None:
        while True:
            notice = self._waiting.get()
            for name, send in self._senders.items():
                try:
                    send(notice)
                except (OSError, ValueError) as error:
                    self._report(f"{name}: {error}")


def follow(ask: Callable[[int], tuple[tuple[Event, ...], int]], since: int) -> Iterator[tuple[Event, ...]]:
    """Yield what is new at each question, also after the scheduler was away and has begun to count anew.

    Args:
        ask: returns the events from a sequence number on, and the next number.
        since: the first number.
    """
    while True:
        try:
            events, following = ask(since)
        except Unavailable:
            events, following = (), since  # it may be back with the next question
        since = following
        yield events


def notice_of(event: Event, names: Mapping[str, str], gpus: Mapping[str, int]) -> dict[str, Any]:
    """Return what is sent for an event."""
    return {**event_text.as_data(event, names), "text": event_text.describe(event, gpus, names)}


def _seconds(text: str) -> str:
    return str(parse_duration(text))


@click.command("notify", help=_HELP, epilog=EXIT_CODES)
@click.argument("container", required=False, shell_complete=complete_container)
@click.option("--url", metavar="URL", help="POST to this address.")
@click.option("--command", "line", metavar="LINE", help="Run this line of the shell.")
@click.option(
    "--timeout",
    default="10s",
    show_default=True,
    callback=checked(lambda text: str(parse_duration(text))),
    metavar="TIME",
)
@kind_option
@directory
@volume_driver
def notify(
    *,
    container: str | None,
    url: str | None,
    line: str | None,
    timeout: str,
    kinds: tuple[str, ...],
    directory: Path | None,
    driver: str,
) -> None:
    """Tell others of events."""
    if not (url or line):
        raise click.UsageError("nobody is to be told: give --url, --command, or both")
    if url and not url.startswith(("http://", "https://")):
        raise click.BadParameter(f"{url}: must begin with http:// or https://", param_hint="--url")
    scheduler = open_scheduler(directory, driver, RequestsHttp)
    names = Names(scheduler, directory)
    volume = names.volume(container)
    senders: dict[str, Send] = {"webhook": Webhook(url, float(timeout))} if url else {}
    senders |= {"command": Command(line, float(timeout))} if line else {}
    dispatcher = Dispatcher(senders, lambda text: click.echo(text, err=True))
    click.echo(f"Telling of: {', '.join(kinds or _KINDS)}. Ctrl-C ends it.", err=True)
    with suppress(KeyboardInterrupt):
        for events in follow(_questions(scheduler), scheduler.events(1 << 62).next):
            for event in events:
                if event.kind in (kinds or _KINDS) and volume in {None, event.container}:
                    dispatcher.put(notice_of(event, names.learn([event]), names.gpus))
            time.sleep(_STEP)


def _questions(scheduler: Scheduler) -> Callable[[int], tuple[tuple[Event, ...], int]]:
    def ask(since: int) -> tuple[tuple[Event, ...], int]:
        answer = scheduler.events(since)
        return answer.events, answer.next

    return ask
