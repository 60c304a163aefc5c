"""Configuration of gunicorn for `readers`."""

import os
from typing import Any, Final

from convgpu.plugin import log_setup, reader_access
from convgpu.plugin.server import gunicorn_config
from convgpu.plugin.settings import read_settings

_settings: Final = read_settings(os.environ)

bind: Final = [f"unix:{_settings.reader_socket}"]
umask: Final = 0o177
workers: Final = 1
worker_class: Final = "gthread"
threads: Final = 8
graceful_timeout: Final = 3
control_socket_disable: Final = True
logger_class: Final = gunicorn_config.QuietLogger
loglevel: Final = _settings.log
logconfig_dict: Final = log_setup.configuration(_settings.log, _settings.log_format)


def when_ready(_server: Any) -> None:
    """Open the socket to the group."""
    reader_access.open_to_group(_settings)
