"""The judge of a real plugin, and the status of authorization over HTTP."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from flask import Blueprint, Response, jsonify, request

from convgpu.authz.facts.device_nodes import HostDevices
from convgpu.authz.facts.engine_root import EngineRoot
from convgpu.authz.facts.host_access import HostAccess
from convgpu.authz.facts.job_files import JobFiles
from convgpu.authz.facts.need_notes import NeedNotes
from convgpu.authz.facts.owners import Owners
from convgpu.authz.facts.permits import Permits
from convgpu.authz.host_programs import HostProgramJudge
from convgpu.authz.judge import Judge
from convgpu.authz.ports import EngineUnreachable, Ports
from convgpu.authz.quotas import Quotas, QuotaUse
from convgpu.authz.site.rules import Rules
from convgpu.authz.site.rules_file import RulesFile
from convgpu.authz.unlimited import UnlimitedJudge
from convgpu.client.scheduler import Scheduler, SchedulerRefused, SchedulerUnavailable
from convgpu.plugin.engine.client import Engine, EngineUnavailable
from convgpu.plugin.engine.facts import EngineView
from convgpu.plugin.settings import Settings
from convgpu.protocol.records import Container, Device, Record
from convgpu.protocol.requests import ListDevices, SetLimits

# Seconds for a question to the Engine, which itself waits at most 30 for our answer.
_ENGINE_TIMEOUT: Final = 10.0


class Authorization(Record, frozen=True):
    """State of the plugin's authorization: the rules in force, whether the Engine answers, and the use of quotas.

    `error` says why the file of rules cannot be used, `instead` what holds; `quotas_error` why the use of quotas is not
    known.
    """

    mode: str
    rules: str
    error: str | None = None
    instead: str = ""
    administrators: tuple[str, ...] = ()
    engine: str | None = None
    engine_error: str | None = None
    quotas: tuple[QuotaUse, ...] = ()
    quotas_error: str | None = None


class Judges(NamedTuple):
    """The judges of calls, of containers without a limit, and of host programs; and the reader of quotas."""

    calls: Judge
    unlimited: UnlimitedJudge
    host_programs: HostProgramJudge
    quotas: Quotas


class SchedulerRecords:
    """See `convgpu.authz.ports.SchedulerPort`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def find(self, volume: str) -> Container | None:
        """Return the container with a volume of ours, or None."""
        return self._scheduler.find_container(volume)

    def all(self) -> list[Container]:
        """Return all containers."""
        return list(self._scheduler.list_containers())

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs."""
        return self._scheduler.ask(ListDevices()).devices

    def set_limit(self, volume: str, memory: str) -> None:
        """Give a container its limit."""
        # A plain text: msgspec encodes no subclass of str, as the limits of a site's rules are.
        self._scheduler.ask(SetLimits(volume, str(memory)))


def create_judges(scheduler: Scheduler, settings: Settings, site: RulesFile) -> Judges:
    """Return the judges that the settings describe."""
    owners = Owners(settings.directory / "owners.json")
    engine = EngineView(Engine(settings.engine, _ENGINE_TIMEOUT), settings.name)
    root = EngineRoot(settings.engine)
    devices = HostDevices(root)
    notes = NeedNotes(settings.directory / "needs.json")
    ports = Ports(engine, devices, SchedulerRecords(scheduler), JobFiles(settings.jobs))
    permits = Permits(settings.directory / "permits.json")

    def rules() -> Rules | None:
        found = site.rules()
        return None if site.error else found

    unlimited = UnlimitedJudge(settings.name, engine, permits, rules)
    host = HostProgramJudge(HostAccess(root), rules)
    quotas = Quotas(owners, ports.scheduler, engine)
    return Judges(Judge(settings.name, ports, owners, notes, permits=permits), unlimited, host, quotas)


def create_status(settings: Settings, site: RulesFile, quotas: Quotas, judged: Callable[[], int]) -> Blueprint:
    """Return the route `/v1/authorization`, which `convgpu authz status` reads.

    With `quotas=false` it leaves out what quotas are used for, which the scheduler has to be asked.
    """
    blueprint = Blueprint("authorization", __name__, url_prefix="/v1")
    engine = Engine(settings.engine, _ENGINE_TIMEOUT)

    @blueprint.get("/authorization")
    def authorization() -> Response | tuple[Response, int]:
        wanted = request.args.get("quotas", "true")
        if wanted not in {"true", "false"}:
            error = {"code": "malformed", "text": f"quotas={wanted}: give true or false"}
            return jsonify({"error": error}), 400
        rules = site.rules()
        try:
            version = engine.ask(lambda api: api.version())["Version"]
            engine_error = None
        except EngineUnavailable as error:
            version, engine_error = None, str(error)
        return jsonify(
            {
                "mode": rules.mode,
                "ids": list(rules.strict.ids),
                "calls": list(rules.strict.calls),
                "fields": list(rules.strict.fields),
                "accepted": list(rules.strict.accept),
                "paths": list(rules.strict.paths),
                "rules": str(site.path),
                "error": site.error,
                "instead": site.instead if site.error else "",
                "administrators": list(rules.administrators),
                "judged": judged(),
                "engine": version,
                "engine_error": engine_error,
                **(_use_of(quotas, rules) if wanted == "true" else {}),
            }
        )

    return blueprint


def _use_of(quotas: Quotas, rules: Rules) -> dict[str, Any]:
    try:
        return {"quotas": msgspec.to_builtins(quotas.read(rules))}
    except (EngineUnreachable, SchedulerUnavailable, SchedulerRefused) as error:
        return {"quotas": [], "quotas_error": str(error)}
