"""What can go wrong for the user of `convgpu`, and the exit code of each."""

from typing import Final

import click

EXIT_CODES: Final = """\b
Exit codes:
  0  done
  1  the demonstration saw no pause, or a container of it failed
  2  wrong usage
  3  ConvGPU or the Docker Engine cannot be used; the message names the next step
`convgpu run` ends with the exit code of `docker run`."""


class Unavailable(click.ClickException):
    """ConvGPU or the Engine cannot be used. The message is one or two lines and names the next step."""

    exit_code = 3
