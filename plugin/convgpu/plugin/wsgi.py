"""What gunicorn serves: the application with the real scheduler behind it."""

import os
from typing import Final

from flask import Flask

from convgpu.client.admin import AdminClient
from convgpu.plugin.engine import Engine
from convgpu.plugin.listing import Listing
from convgpu.plugin.server import create_app
from convgpu.plugin.settings import read_settings

# Seconds for a question to the scheduler, while it is still starting included. Less than the 30 s that the Engine
# waits for a call, so that the user reads our error and not the Engine's.
_PATIENCE: Final = 10.0
# Seconds that the Engine may take for a list; nobody waits for it.
_LISTING: Final = 10.0


def create() -> Flask:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    scheduler = AdminClient(str(settings.admin_socket), timeout=_PATIENCE)
    listing = Listing(Engine(settings.engine, _LISTING), scheduler, settings.name)
    listing.start()
    return create_app(scheduler, settings, listing.doubt)
