"""What gunicorn serves: the application with the real scheduler behind it."""

import os
from typing import Final

from flask import Flask

from convgpu.client.admin import AdminClient
from convgpu.plugin.engine import Engine
from convgpu.plugin.listing import Listing
from convgpu.plugin.server import create_app
from convgpu.plugin.settings import read_settings

# Seconds for a question to the scheduler. It may be just starting, and a container that the Engine starts at boot is
# tried once only; but one that is there and says nothing hangs, and meanwhile the Engine holds the container's lock.
# Both are less than the 30 s that the Engine waits, so that the user reads our error and not the Engine's.
_PATIENCE: Final = 15.0
_ANSWER: Final = 5.0
# Seconds that the Engine may take for a list; nobody waits for it.
_LISTING: Final = 10.0


def create() -> Flask:
    """Return the application as the environment's settings describe it."""
    settings = read_settings(os.environ)
    scheduler = AdminClient(str(settings.admin_socket), _PATIENCE, _ANSWER)
    listing = Listing(Engine(settings.engine, _LISTING), scheduler, settings.name)
    listing.start()
    return create_app(scheduler, settings, listing.doubt)
