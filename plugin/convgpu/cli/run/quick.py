"""The quick path of `convgpu run` and `create`: a usual line, without click (decision 143).

Whatever is unusual raises some error and leaves the line to the whole command, which has the words for it. Until docker
takes this process's place nothing is changed, so that the line can be read again.
"""

from __future__ import annotations

import os
import sys

from convgpu.cli.connect.engine_documents import image_url, plugin_directory, plugin_url, read_image, read_plugin
from convgpu.cli.connect.engine_endpoint import Options, resolve
from convgpu.cli.connect.quick_http import Question, QuickHttp
from convgpu.cli.run.docker_arguments import check, scan
from convgpu.cli.run.injection import Request
from convgpu.cli.run.own_options import OPTIONS, OWN, TERMS
from convgpu.cli.run.preparation import prepare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final, NoReturn

    from convgpu.cli.connect.engine_documents import Image, Plugin
    from convgpu.cli.connect.engine_endpoint import Endpoint

INFO: Final = "/info"
_OK: Final = 200
_TIMEOUT: Final = 2.0  # seconds for each step of an exchange; the whole command waits longer
_ROWS: Final = {name: row for row in OPTIONS for name in row.names}


class UnusualError(Exception):
    """The line, or an answer, is left to the whole command."""


class QuickEngine:
    """An Engine that is asked for everything at once, and answers while we go on.

    What `docker info` says is asked for only where it is needed: an Engine of 20.10 starts two programs for it.

    Args:
        endpoint: with a UNIX socket.
        plugin: the name of the plugin.
        image: the name of the image.
        also: further URLs that are asked for.

    Raises:
        UnusualError: an answer is not the usual one.
        OSError: nobody answers.
    """

    def __init__(self, endpoint: Endpoint, plugin: str, image: str, *also: str) -> None:
        self.endpoint = endpoint
        self._questions: dict[str, Question] = {}
        self._documents: dict[str, Any] = {}
        self._http = QuickHttp(endpoint.path or "", _TIMEOUT)
        self._image = image
        self._server = ""
        for url in (plugin_url(plugin), image_url(image), *also):
            self._questions[url] = self._http.send("GET", url)

    def close(self) -> None:
        """Close the connections of questions whose answers nobody reads."""
        for question in self._questions.values():
            question.close()

    @property
    def info(self) -> Mapping[str, Any]:
        """See `Engine.info`."""
        return self._object(INFO)

    @property
    def version(self) -> str:
        """See `Engine.version`. An answer's header says it, too: `Docker/20.10.24 (linux)`."""
        name, _, version = self._server.partition("/")
        return version.partition(" ")[0] if name == "Docker" else str(self.info.get("ServerVersion", ""))

    def plugin(self, name: str) -> Plugin:
        """See `Engine.plugin`."""
        plugin = read_plugin(name, self._object(plugin_url(name)))
        if plugin is None:
            raise UnusualError("disabled")
        return plugin

    def directory(self, plugin: Plugin) -> str:
        """See `Engine.directory`."""
        return plugin_directory(self.image(self._image).data_root or self.info.get("DockerRootDir"), plugin)

    def is_simulated(self, plugin: Plugin) -> bool:
        """See `Engine.is_simulated`; here the plugin's settings say it."""
        devices = plugin.settings["CONVGPU_DEVICES"]
        if os.access(plugin.path, os.W_OK):
            Question(plugin.path, b"", _TIMEOUT).close()  # if nobody listens the whole command says why
        return devices.startswith("simulated:")

    def image(self, name: str) -> Image:
        """See `Engine.image`; one that has to be pulled is unusual."""
        return read_image(self._object(image_url(name)))

    def image_has(self, image: str, path: str) -> bool:
        """See `Engine.image_has`; it takes a container."""
        raise UnusualError(image, path)

    def get(self, url: str) -> Any:
        """Return the document of a URL."""
        if url not in self._documents:
            question = self._questions.get(url) or self._http.send("GET", url)
            answer = question.answer()
            self._server = answer.headers.get("server", "")
            if answer.status != _OK:
                raise UnusualError(url, answer.status)
            self._documents[url] = answer.json()
        return self._documents[url]

    def _object(self, url: str) -> Mapping[str, Any]:
        found = self.get(url)
        if not isinstance(found, dict):
            raise UnusualError(url)
        return found


def run_quickly(verb: str, words: Sequence[str]) -> None:
    """Let docker take the place of this process; return where the whole command has to do it.

    Args:
        verb: `run` or `create`.
        words: behind it.
    """
    try:
        become(docker_command(verb, words))
    except KeyboardInterrupt:
        abort()
    except Exception:
        return


def become(command: list[str]) -> NoReturn:
    """Let docker take the place of this process."""
    for name in ("CONVGPU_DOCKER_PLUGIN", "DOCKER_CLI_PLUGIN_SOCKET"):  # of the call of `docker convgpu`
        os.environ.pop(name, None)
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def docker_command(verb: str, words: Sequence[str]) -> list[str]:
    """Return the docker command of a usual line.

    Raises:
        Exception: the line, the Engine or the plugin is not usual.
    """
    line = scan(words, OWN)
    given = read_options(line.own, os.environ)
    check(line)
    terms = {name: given[name] for name in TERMS}
    request = Request(str(given["gpu_memory"]), given["wait"], str(given["driver"]), given["gpus"], verb=verb, **terms)
    endpoint = resolve(Options(), os.environ)
    if endpoint.path is None:
        raise UnusualError(endpoint.host)
    engine = QuickEngine(endpoint, request.driver, line.image[0])
    try:
        return prepare(line, request, engine)[0]
    finally:
        engine.close()


def read_options(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the values of ConvGPU's own options, by their keys.

    Raises:
        UnusualError: something is missing or no option of a usual line.
        KeyError: `--help`.
        ValueError: a value is wrong.
    """
    typed: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        row = _ROWS[name]
        if row.is_flag:
            raise UnusualError(word)
        typed[row.key] = value if equals else next(rest)
    found: dict[str, str | None] = {}
    for row in OPTIONS:
        value_or_none = typed.get(row.key, environment.get(row.variable) or row.default)
        if value_or_none is None:
            if row.required:
                raise UnusualError(row.key)
        elif row.choices and value_or_none not in row.choices:
            raise UnusualError(value_or_none)
        elif row.check is not None:
            value_or_none = row.check(value_or_none)
        found[row.key] = value_or_none
    return found


def abort() -> NoReturn:
    """End as click does at Ctrl-C."""
    if sys.stderr is not None:
        sys.stderr.write("\nAborted!\n")
    sys.exit(1)
