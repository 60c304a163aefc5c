"""Shell completion in the form of Docker's command line (cobra): candidates, a tab, their help, and a directive."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem, ShellComplete

if TYPE_CHECKING:
    from convgpu.cli.connect.scheduler import Scheduler

AnswerT = TypeVar("AnswerT")

_DEFAULT: Final = 0  # the shell may complete file names
_NO_FILES: Final = 4
_DOCKER_TIMEOUT: Final = 2.0  # seconds that docker may take to complete its own options


def complete(main: click.Command, words: Sequence[str], incomplete: str) -> list[str]:
    """Return what cobra's `__complete` prints for `words` and the word that is being typed."""
    found = ShellComplete(main, {}, "convgpu", "_CONVGPU_COMPLETE").get_completions(list(words), incomplete)
    plain = [item for item in found if item.type == "plain"]
    lines = [f"{item.value}\t{_first_line(item.help)}" if item.help else str(item.value) for item in plain]
    command = next((word for word in words if word in {"run", "create"}), None)
    if command is not None:
        behind = list(words[list(words).index(command) + 1 :])
        more, directive = _ask_docker([command, *_without_ours(behind), incomplete])
        ours = {item.value for item in plain}
        return [*lines, *(line for line in more if line.partition("\t")[0] not in ours), f":{directive}"]
    return [*lines, f":{_NO_FILES if plain or not found else _DEFAULT}"]


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].split(". ", 1)[0]


def _without_ours(words: Sequence[str]) -> tuple[str, ...]:
    from convgpu.cli.run.docker_arguments import UsageError, scan  # noqa: PLC0415
    from convgpu.cli.run.own_options import OWN  # noqa: PLC0415 - only `run` needs it

    try:
        line = scan(words, OWN)
    except UsageError:
        return ()
    return (*line.docker, *line.image)


def _ask_docker(words: Sequence[str]) -> tuple[list[str], int]:
    """Return docker's own candidates and directive for its `run` and `create`: options, images."""
    try:
        done = subprocess.run(
            ["docker", "__complete", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=_DOCKER_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [], _DEFAULT
    *lines, last = done.stdout.splitlines() or [""]
    return (lines, int(last[1:])) if last[:1] == ":" and last[1:].isdigit() else ([], _DEFAULT)


def complete_container(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of containers; a completion never fails."""
    from convgpu.cli.connect.named_containers import list_containers  # noqa: PLC0415 - as below

    found = _ask(ctx, list_containers) or ()
    return [
        CompletionItem(entry.name, help=entry.container.state) for entry in found if entry.name.startswith(incomplete)
    ]


def complete_device(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the indices of GPUs, and a UUID once its beginning is typed."""
    answer = _ask(ctx, lambda scheduler, _: scheduler.devices())
    return [
        CompletionItem(word, help=device.name)
        for device in (answer.devices if answer else ())
        for word in (str(device.index), *([device.uuid] if incomplete else []))
        if word.startswith(incomplete)
    ]


def complete_policy(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of policies."""
    answer = _ask(ctx, lambda scheduler, _: scheduler.policy())
    return [CompletionItem(name) for name in (answer.known if answer else ()) if name.startswith(incomplete)]


def complete_placement(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of policies of placement."""
    answer = _ask(ctx, lambda scheduler, _: scheduler.placement())
    return [CompletionItem(name) for name in (answer.known if answer else ()) if name.startswith(incomplete)]


def _ask(ctx: click.Context, question: "Callable[[Scheduler, Path | None], AnswerT]") -> "AnswerT | None":
    """Ask the scheduler that the typed options name; None if there is no answer."""
    from convgpu.cli.connect.discovery import open_scheduler  # noqa: PLC0415 - most completions need none
    from convgpu.cli.connect.engine_endpoint import Options, remember  # noqa: PLC0415 - as below

    # The options of `policy` stand before `use`.
    given: dict[str, Any] = {**(ctx.parent.params if ctx.parent else {}), **ctx.params}
    engine = {name: value for name, value in ctx.find_root().params.items() if name in Options.__annotations__}
    with ctx.scope():
        remember(Options(**engine))  # no command runs that would have done it
        try:
            directory = given.get("directory")
            return question(open_scheduler(directory, given.get("driver") or "convgpu"), directory)
        except click.ClickException:
            return None
