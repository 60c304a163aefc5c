"""The plugin's log: on standard output, with a cause of its own for each request (`convgpu.logs`).

Docker turns a plugin's standard error into errors of its own log, and each line into a record.
"""

import itertools
import re
import secrets
from typing import Final

from convgpu.logs.cause import set_cause
from convgpu.plugin.unread_pipe import PipeHandler

_STDOUT: Final = 1
# The resource of an administration path or the method of one of Docker's; nothing else that a client chose.
_SUBJECT: Final = re.compile(r"/(?:\w+\.|v1/)([A-Za-z]{1,16})\b", re.ASCII)
# Distinguishes the causes of each start of the plugin.
_RUN: Final = secrets.token_hex(3)
_numbers: Final = itertools.count(1)


def begin_request(path: str) -> None:
    """Set the cause of the request that this thread serves: `Mount-3f9ac1-7`."""
    subject = _SUBJECT.match(path)
    set_cause(f"{subject[1] if subject else 'http'}-{_RUN}-{next(_numbers)}")


def end_request() -> None:
    """Clear the cause after the answer, so that the thread's next work does not carry it."""
    set_cause("")


def configuration(level: str, form: str) -> dict[str, object]:
    """Return the argument of `logging.config.dictConfig`, which gunicorn takes as `logconfig_dict`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "convgpu.logs.formatter.create_formatter", "form": form}},
        "handlers": {"output": {"()": PipeHandler, "formatter": "line", "descriptor": _STDOUT}},
        "root": {"level": level.upper(), "handlers": ["output"]},
        # gunicorn's own loggers would write to standard error as well.
        "loggers": {
            "gunicorn.error": {"level": level.upper(), "handlers": [], "propagate": True},
        },
    }
