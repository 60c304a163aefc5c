"""The scheduler as the command line sees it: behind the plugin's HTTP socket or a plain `admin.sock`."""

from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

import requests
import requests_unixsocket
from pydantic import ValidationError

from convgpu.cli.errors import Unavailable
from convgpu.client.admin import AdminClient, SchedulerRefused, SchedulerUnavailable
from convgpu.protocol.records import Container, Containers, Devices, Events, Record

_TIMEOUT = 10.0  # seconds

RecordT = TypeVar("RecordT", bound=Record)


class Door(Protocol):
    """A way to ask the scheduler."""

    def ask(self, op: str, **fields: object) -> object:
        """Return the answer to `op`.

        Raises:
            Unavailable: no answer, or a refusal.
        """


class DaemonDoor:
    """The `admin.sock` of a `convgpud` that runs without Docker.

    Args:
        directory: of the daemon.
        timeout: seconds for one question, waiting for a daemon that is just starting included.
    """

    def __init__(self, directory: Path, timeout: float = _TIMEOUT) -> None:
        self._client = AdminClient(str(directory / "admin.sock"), timeout)
        self._directory = directory

    def ask(self, op: str, **fields: object) -> object:
        """See `Door.ask`."""
        try:
            return self._client.request(op, **fields)
        except SchedulerRefused as error:
            raise Unavailable(f"the scheduler refused: {error.text}") from error
        except SchedulerUnavailable as error:
            raise Unavailable(
                f"{error}\nStart one there with: convgpud --directory {self._directory}; "
                "or leave out --directory (and CONVGPU_DIRECTORY) to ask the plugin of the Docker Engine."
            ) from error


class PluginDoor:
    """The plugin's HTTP administration on its socket, which only root may reach."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session = requests_unixsocket.Session()

    def ask(self, op: str, **fields: object) -> object:
        """See `Door.ask`; here `op` may be `devices`, `containers` or `events`."""
        url = f"http+unix://{quote(str(self._path), safe='')}/v1/{op}"
        query = {name: str(value) for name, value in fields.items()}
        try:
            self._path.stat()  # requests-unixsocket leaks a socket for each path that it cannot connect to
            response = self._session.get(url, params=query, timeout=_TIMEOUT)
            answer: object = response.json()
        except (OSError, ValueError) as error:  # requests' own errors are OSErrors
            raise self._explain(error) from error
        if response.status_code != requests.codes.ok:
            problem = answer.get("error") if isinstance(answer, dict) else None
            text = problem.get("text") if isinstance(problem, dict) else response.reason
            raise Unavailable(f"the plugin answered {response.status_code}: {text}")
        return answer

    def close(self) -> None:
        """Close the connection that is kept open."""
        self._session.close()

    def _explain(self, error: Exception) -> Unavailable:
        if "Permission denied" in str(error):
            return Unavailable(
                f"no permission to open the plugin's socket {self._path}.\nRun this as root: sudo convgpu ..."
            )
        return Unavailable(
            f"the plugin does not answer on {self._path} ({error}).\nLook at the Engine's log for lines with "
            "plugin=..., and restart it: docker plugin disable -f NAME && docker plugin enable NAME"
        )


class Scheduler:
    """Typed questions over a door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def devices(self) -> Devices:
        """Return the GPUs, the policy, and where the volume brings a driver along."""
        return self._read(Devices, "devices")

    def containers(self) -> tuple[Container, ...]:
        """Return what the scheduler knows of each container."""
        return self._read(Containers, "containers").containers

    def events(self, since: int = 0) -> Events:
        """Return the events with a sequence number of `since` or more."""
        return self._read(Events, "events", since=since)

    def _read(self, model: type[RecordT], op: str, **fields: object) -> RecordT:
        answer = self._door.ask(op, **fields)
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise Unavailable(
                f"the scheduler's answer to {op!r} is not understood ({where}: {first['msg']}).\n"
                "The plugin and this command are of different versions: upgrade the older one."
            ) from error
