"""Answers on `records.sock`: JSON in, JSON out."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pydantic import ValidationError

from convgpu.daemon.containers import Container, ContainerRefusedError, Containers
from convgpu.daemon.devices import Device
from convgpu.daemon.options import DeviceCapacity
from convgpu.daemon.sessions import Session, Sessions
from convgpu.daemon.store import MOUNTED_AT
from convgpu.protocol import journal, records, requests

log = logging.getLogger(__name__)


class Administration:
    """Carries out what administrators ask.

    Args:
        capacities: what may be handed out of each device.
        policy: its name.
        simulated: whether the driver comes with the volumes.
        wall_clock: Unix seconds.
    """

    def __init__(
        self,
        containers: Containers,
        sessions: Sessions,
        devices: Sequence[Device],
        capacities: Sequence[DeviceCapacity],
        wall_clock: Callable[[], float],
        *,
        policy: str,
        simulated: bool,
    ) -> None:
        self._containers = containers
        self._sessions = sessions
        self._capacity = {one.uuid: one.capacity for one in capacities}
        self._devices = [device for device in devices if device.uuid in self._capacity]
        self._policy = policy
        self._library_path = f"{MOUNTED_AT}/driver" if simulated else None
        self._wall_clock = wall_clock

    def answer(self, body: bytes) -> bytes:
        """Return the JSON answer to a JSON request; whatever is asked, there is one."""
        cause = ""
        try:
            request = requests.REQUEST.validate_json(body)
            cause = request.cause
            with journal.working_for(cause):
                result = {"ok": self._do(request)}
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "request"
            result = _error("invalid", f"{place}: {first['msg']}")
        except ContainerRefusedError as error:
            result = _error(error.code, str(error))
        except OSError as error:
            log.exception("administration", extra={"cause": cause})
            result = _error("failed", f"the scheduler could not do it: {error}")
        if "error" in result:
            # The Engine asks for each new volume first whether it is there: no news.
            level = logging.DEBUG if result["error"]["code"] == "unknown" else logging.WARNING
            text = result["error"]["text"]
            log.log(level, "refused code=%s %s", result["error"]["code"], text, extra={"cause": cause})
        return json.dumps(result).encode()

    def _do(self, request: requests.Request) -> Mapping[str, object]:
        match request:
            case requests.Create():
                self._containers.create(request.name, request.options, self._wall_clock())
            case requests.Remove():
                self._containers.remove(request.name)
            case requests.Mount():
                return {"mountpoint": self._containers.mount(request.name, request.id)}
            case requests.Unmount():
                self._containers.unmount(request.name, request.id)
            case requests.Containers(name=name):
                return {"containers": [one.model_dump() for one in self._list(name)]}
            case requests.Devices():
                rows = [self._device(device).model_dump() for device in self._devices]
                return {"devices": rows, "policy": self._policy, "volume_library_path": self._library_path}
            case requests.Events(since=since):
                return self._sessions.history.since(since)
        return {}

    def _list(self, name: str | None) -> list[records.Container]:
        known = self._containers.by_name
        if name is None:
            chosen = list(known.values())
        elif name in known:
            chosen = [known[name]]
        else:
            raise ContainerRefusedError("unknown", f"no volume {name}")
        sessions = self._sessions.by_container()
        waiting = self._waiting()
        ordered = sorted(chosen, key=lambda c: (c.volume.created, c.volume.name))
        return [
            self._container(one, sessions.get(one.volume.name, []), waiting.get(one.volume.name, [])) for one in ordered
        ]

    def _container(
        self, container: Container, sessions: Sequence[Session], waiting: Sequence[records.Waiting]
    ) -> records.Container:
        name = container.volume.name
        alive = container.mounted or bool(sessions)
        idle: Literal["ended", "created"] = "ended" if container.volume.ended else "created"
        accounts = self._sessions.machine.ledger.accounts.get(name, {})
        return records.Container(
            name=name,
            mountpoint=self._containers.mountpoint(name),
            created=container.volume.created,
            state="waiting" if waiting else "running" if alive else idle,
            mounts=sum(container.volume.mounts.values()),
            devices=tuple(
                records.Share(
                    uuid=uuid, limit=account.limit, grant=account.grant, usage=self._sessions.used(name, uuid)
                )
                for uuid, account in accounts.items()
            ),
            sessions=tuple(self._session(session) for session in sessions),
            waiting=tuple(waiting),
        )

    def _session(self, session: Session) -> records.Session:
        usage = tuple(
            records.SessionShare(uuid=uuid, usage=self._sessions.used_by(session, uuid)) for uuid in session.rows
        )
        return records.Session(pid=session.pid, program=session.program, since=session.since, devices=usage)

    def _waiting(self) -> dict[str, list[records.Waiting]]:
        grouped: dict[str, list[records.Waiting]] = {}
        for one in self._sessions.machine.waiting:
            asked = self._sessions.asked[one.request]
            row = records.Waiting(
                uuid=one.device,
                size=one.size,
                call=asked.call,
                pid=asked.session.pid,
                since=asked.since,
                missing=one.missing,
            )
            grouped.setdefault(one.container, []).append(row)
        return grouped

    def _device(self, device: Device) -> records.Device:
        ledger = self._sessions.machine.ledger
        accounts = [account[device.uuid] for account in ledger.accounts.values() if device.uuid in account]
        return records.Device(
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            total=device.total,
            capacity=self._capacity[device.uuid],
            granted=sum(account.grant for account in accounts),
            used=self._sessions.used_on(device.uuid),
            settling=self._sessions.machine.settling(device.uuid),
        )


def _error(code: str, text: str) -> dict[str, Mapping[str, object]]:
    return {"error": {"code": code, "text": text}}
