"""The errors that a user of `convgpu` gets, and their exit codes."""

from collections.abc import Iterable
from typing import Final

import click

EXIT_CODES: Final = """\b
Exit codes:
  0  done
  1  it cannot be (no such container, a limit that does not fit), or
     demo or doctor did not see what has to be
  2  wrong usage
  3  ConvGPU or the Docker Engine cannot be used; the message says
     what to do
  4  doctor found nothing wrong, and could not prove everything
`convgpu run` ends with the exit code of `docker run`."""


class Refused(click.ClickException):
    """The request is not possible. The message is one or two lines and names the next step."""

    exit_code = 1


class Unavailable(click.ClickException):
    """ConvGPU or the Engine cannot be used. The message is one or two lines and names the next step."""

    exit_code = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean NAME?` for the known names that are spelled alike; empty where there is none."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    close = get_close_matches(word, sorted(set(known)), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""
