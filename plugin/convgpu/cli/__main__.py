"""`convgpu`: what people type."""

from typing import Final

import click

from convgpu.cli.dashboard import dashboard
from convgpu.cli.demo import demo
from convgpu.cli.errors import EXIT_CODES
from convgpu.cli.ps import ps
from convgpu.cli.run import run

_HELP: Final = """Share NVIDIA GPUs between containers: memory limits, and a pause instead of out-of-memory.

\b
First steps:
  convgpu demo                              see a container wait and go on
  convgpu run --gpu-memory 2g IMAGE CMD     run yours with a limit
  convgpu ps                                see who has what, and who waits
"""


@click.group(
    help=_HELP,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="convgpu", message="%(prog)s %(version)s")
def main() -> None:
    """Share NVIDIA GPUs between containers."""


main.add_command(demo)
main.add_command(run)
main.add_command(ps)
main.add_command(dashboard)

if __name__ == "__main__":
    main(prog_name="convgpu")
