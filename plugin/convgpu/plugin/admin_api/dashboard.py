"""The static files of the page. Its data comes from `convgpu dashboard`, which polls the administration.

So no reader of the page ever holds a thread of this server: all are for the Engine's calls (decision 14).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flask import Blueprint, Response, abort

FILES: Final = Path(__file__).parent / "page"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing comes from anywhere else, and nothing else may show the page.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_blueprint() -> Blueprint:
    """Return the routes below `/dashboard`; the files are read once."""
    blueprint = Blueprint("dashboard", __name__, url_prefix="/dashboard")
    files = {path.name: path.read_bytes() for path in FILES.iterdir() if path.suffix in _TYPES}

    @blueprint.get("/")
    @blueprint.get("/<name>")
    def file(name: str = "index.html") -> Response:
        if name not in files:
            abort(404)
        content_type = _TYPES[name[name.rindex(".") :]]
        return Response(files[name], headers=_HEADERS, content_type=content_type)

    return blueprint
