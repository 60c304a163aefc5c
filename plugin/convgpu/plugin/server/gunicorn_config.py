"""Configuration of gunicorn, which reads it as `--config python:convgpu.plugin.server.gunicorn_config`."""

import os
from typing import Final

from gunicorn.glogging import Logger

from convgpu.plugin import log_setup
from convgpu.plugin.settings import read_settings


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Keeps no access log, which gunicorn would prepare for each request as soon as logging is configured."""

    access_log_enabled = False


_settings: Final = read_settings(os.environ)

# The plugin's supervisor gives its own socket in place of this one (`--bind`).
bind: Final = [f"unix:{_settings.socket}"]
# The socket is as powerful as the Engine's own: for root only.
umask: Final = 0o177
# One process, because the Engine's calls are few, and because its notes are its own: with two that wrote permits.json
# each lost what the other had noted. Threads, because an authorization may wait for another call.
workers: Final = 1
worker_class: Final = "convgpu.plugin.server.worker.PluginWorker"
# More than the volume calls that an Engine has open, so that a scheduler that hangs does not delay authorization.
threads: Final = 64
# Seconds; ten years. A connection is closed by the client only: one that the server closes may just be in use, and the
# Engine would try again without a body (docs/decisions/0017-connections-are-kept.md).
keepalive: Final = 10 * 365 * 86_400
# Less than the 10 s that the Engine gives a plugin to end.
graceful_timeout: Final = 3
control_socket_disable: Final = True
logger_class: Final = QuietLogger
loglevel: Final = _settings.log
logconfig_dict: Final = log_setup.configuration(_settings.log, _settings.log_format)
