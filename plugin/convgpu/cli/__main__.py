"""`convgpu`, the command line. Each command is imported when it is used, so that help appears at once."""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeVar

import click

from convgpu.cli.connect.engine_endpoint import Options, remember
from convgpu.cli.terminal.errors import EXIT_CODES, Unavailable

# Section -> command -> (module:object, its help in one line).
COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Containers": {
        "run": ("convgpu.cli.run.command:run", "docker run, with a limit on GPU memory"),
        "create": ("convgpu.cli.run.command:create", "docker create, with a limit on GPU memory"),
        "ps": ("convgpu.cli.show.ps:ps", "who has how much GPU memory, and who waits for whom"),
        "inspect": ("convgpu.cli.show.inspect_container:inspect", "all that is known of a container"),
        "wait": ("convgpu.cli.show.wait:wait", "block until containers have the memory they wait for"),
        "trace": ("convgpu.cli.show.trace:trace", "the calls of a container that take memory, live"),
        "events": ("convgpu.cli.show.events:events", "what happens: starts, pauses, refusals, ends"),
        "history": ("convgpu.cli.show.events:history", "what happened, also before a restart"),
    },
    "Watching": {
        "top": ("convgpu.cli.show.top:top", "ps, live in the terminal"),
        "dashboard": ("convgpu.cli.serve.dashboard:dashboard", "a page that shows all this live, and over time"),
        "metrics": ("convgpu.cli.serve.metrics:metrics", "the figures for Prometheus"),
        "notify": ("convgpu.cli.show.notify:notify", "tell others by a webhook or a command"),
    },
    "Administration": {
        "devices": ("convgpu.cli.setup.administer:devices", "the GPUs: capacity, grants, usage"),
        "set": ("convgpu.cli.setup.administer:set_limit", "change a container's limit, longest pause, priority"),
        "suspend": ("convgpu.cli.setup.suspend:suspend", "move a container's memory to the host"),
        "resume": ("convgpu.cli.setup.suspend:resume", "bring it back"),
        "drain": ("convgpu.cli.setup.administer:drain", "give no new memory on a GPU"),
        "policy": ("convgpu.cli.setup.policy:policy", "show or choose who of the waiting is next"),
        "placement": ("convgpu.cli.setup.placement:placement", "show or choose which GPUs containers get"),
    },
    "Clusters": {
        "submit": ("convgpu.cli.cluster.submit:submit", "run a container on the cluster, as a job of Slurm"),
        "jobs": ("convgpu.cli.cluster.jobs:jobs", "the jobs: what they have, and why they wait"),
        "logs": ("convgpu.cli.cluster.jobs:logs", "what a job printed; -f: live"),
        "cancel": ("convgpu.cli.cluster.jobs:cancel", "end jobs, and their containers with them"),
        "job": ("convgpu.cli.cluster.job.command:job", "in a script of sbatch: a container with the job's GPUs"),
        "simulate": ("convgpu.cli.cluster.simulate:simulate", "play the jobs of a trace on a cluster, by policy"),
        "slurm": ("convgpu.cli.cluster.slurm:slurm", "make a Slurm cluster one with ConvGPU, and check it"),
    },
    "Setting up": {
        "authz": ("convgpu.cli.setup.authorization:authz", "turn authorization on or off, or show whether it works"),
        "doctor": ("convgpu.cli.doctor.command:doctor", "prove that limits hold here, or say what is wrong"),
        "demo": ("convgpu.cli.demo.command:demo", "see a container wait and go on"),
        "install": ("convgpu.cli.setup.install:install", "`docker convgpu`, the plugin, its runtime, its CDI devices"),
        "upgrade": ("convgpu.cli.setup.lifecycle.plugin_image:upgrade", "replace the plugin by another version"),
        "uninstall": ("convgpu.cli.setup.lifecycle.uninstall:uninstall", "take everything off this host again"),
    },
}

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_HELP: Final = """Share NVIDIA GPUs between containers: memory limits, and a pause instead of out-of-memory.

\b
First steps:
  convgpu demo                              see a container wait and go on
  convgpu run --gpu-memory 2g IMAGE CMD     run yours with a limit
  convgpu ps                                see who has what, and who waits
"""


class LazyGroup(click.Group):
    """Knows its commands by name and imports them when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a command."""
        for section in COMMANDS.values():
            if cmd_name in section:
                place, short_help = section[cmd_name]
                module, _, attribute = place.partition(":")
                command: click.Command = getattr(import_module(module), attribute)
                command.short_help = short_help
                if not gc.isenabled():  # by `entry`
                    gc.freeze()  # what was imported
                    gc.enable()
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; name those that are spelled alike where there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from convgpu.cli.terminal.errors import did_you_mean  # noqa: PLC0415 - only a mistake needs it

            alike = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(error.message + alike, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the sections, without importing anything."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, help_text) for name, (_, help_text) in section.items()], col_max=12)


def _docker_option(*names: str, **settings: Any) -> Callable[[FunctionT], FunctionT]:
    return click.option(*names, hidden=True, **settings)


@click.group(
    cls=LazyGroup,
    help=_HELP,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-H", "--host", metavar="HOST", help="The Engine's socket, as for docker; also --tls, --tlsverify, ...")
@click.option("-c", "--context", metavar="NAME", help="The Docker context, as for docker.")
@_docker_option("--config")
@_docker_option("--tls", is_flag=True)
@_docker_option("--tlsverify", is_flag=True)
@_docker_option("--tlscacert")
@_docker_option("--tlscert")
@_docker_option("--tlskey")
@_docker_option("-D", "--debug", is_flag=True, expose_value=False)
@_docker_option("-l", "--log-level", expose_value=False)
@click.version_option(package_name="convgpu", message="%(prog)s %(version)s")
def main(**given: Any) -> None:
    """Share NVIDIA GPUs between containers."""
    remember(Options(**given))


def start() -> None:
    """Start as `convgpu`, or, under the name `docker-convgpu`, as a plugin of Docker's command line."""
    _open_streams()
    try:
        _start()
    except OSError as error:
        # Above all a full disk behind `>`; expected errors are handled where they occur.
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"Error: {where}{error.strerror or error}\n")
        sys.exit(Unavailable.exit_code)


def _open_streams() -> None:
    """Open the null device for a process that was started without stdout or stderr (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - as long as we live


def _start() -> None:
    is_plugin = os.environ.pop("CONVGPU_DOCKER_PLUGIN", "") == "1"
    if is_plugin or os.path.basename(sys.argv[0]) == "docker-convgpu":  # noqa: PTH119 - no pathlib for a name
        from convgpu.cli.docker_plugin import start_plugin  # noqa: PLC0415 - not needed otherwise

        start_plugin(main, sys.argv[1:])
    main(prog_name="convgpu")


if __name__ == "__main__":
    start()
