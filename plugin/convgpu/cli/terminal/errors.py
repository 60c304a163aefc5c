"""The errors that a user of `convgpu` gets, and their exit codes."""

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
`convgpu run` ends with the exit code of `docker run`."""


class Refused(click.ClickException):
    """The request is not possible. The message is one or two lines and names the next step."""

    exit_code = 1


class Unavailable(click.ClickException):
    """ConvGPU or the Engine cannot be used. The message is one or two lines and names the next step."""

    exit_code = 3
