"""The judge of a real plugin, and what it says of itself over HTTP."""

from typing import Final

from flask import Blueprint, Response, jsonify

from convgpu.plugin.authz.engine_view import EngineView
from convgpu.plugin.authz.judge import Judge
from convgpu.plugin.authz.limits import Limits
from convgpu.plugin.authz.nodes import HostNodes, engine_root
from convgpu.plugin.authz.owners import Owners
from convgpu.plugin.authz.site_file import SiteFile
from convgpu.plugin.engine import Engine, EngineUnavailable
from convgpu.plugin.scheduler import Scheduler
from convgpu.plugin.settings import Settings

# Seconds for a question to the Engine; it waits at most 30 for our answer, and then its client for its own.
_PATIENCE: Final = 10.0


def create_judge(scheduler: Scheduler, settings: Settings) -> Judge:
    """Return the judge that the settings describe."""
    owners = Owners(settings.directory / "owners.json")
    view = EngineView(Engine(settings.engine, _PATIENCE))
    return Judge(settings.name, view, HostNodes(lambda: engine_root(settings.engine)), Limits(scheduler, owners))


def create_status(settings: Settings, site: SiteFile) -> Blueprint:
    """Return the route `/v1/authorization`, by which `convgpu authz status` learns what is in force."""
    blueprint = Blueprint("authorization", __name__, url_prefix="/v1")
    engine = Engine(settings.engine, _PATIENCE)

    @blueprint.get("/authorization")
    def authorization() -> Response:
        rules = site.rules()
        try:
            version = engine.ask(lambda api: api.version())["Version"]
            engine_error = None
        except EngineUnavailable as error:
            version, engine_error = None, str(error)
        return jsonify(
            {
                "mode": rules.mode,
                "rules": str(site.path),
                "error": site.error,
                "administrators": list(rules.administrators),
                "engine": version,
                "engine_error": engine_error,
            }
        )

    return blueprint
