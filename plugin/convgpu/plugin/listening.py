"""Configuration of gunicorn, which reads it as `--config python:convgpu.plugin.listening`."""

import os
from typing import Final

from gunicorn.glogging import Logger

from convgpu.plugin import journal
from convgpu.plugin.settings import read_settings


class QuietLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Keeps no access log, which gunicorn would prepare for each request as soon as logging is configured."""

    access_log_enabled = False


_settings: Final = read_settings(os.environ)

bind: Final = [f"unix:{_settings.socket}"]
# The socket is as powerful as the Engine's own: for root only.
umask: Final = 0o177
# One process, because the Engine's calls are few; threads, because an authorization may wait for another call.
workers: Final = 1
worker_class: Final = "gthread"
# More than the volume calls that an Engine has open, so that a scheduler that hangs does not delay authorization.
threads: Final = 64
# With any keep-alive the Engine meets connections that are just being closed, and tries again without a body.
keepalive: Final = 0
# Less than the 10 s that the Engine gives a plugin to end.
graceful_timeout: Final = 3
control_socket_disable: Final = True
logger_class: Final = QuietLogger
loglevel: Final = _settings.log
logconfig_dict: Final = journal.configuration(_settings.log, _settings.log_format)
