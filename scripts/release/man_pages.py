# SPDX-License-Identifier: Apache-2.0
r"""Man pages from the command's own help: `convgpu`, one for each of its commands, and `convgpud`.

    scripts/release/man_pages.py FOLDER VERSION DATE

click-man 0.6 cannot be taken: it does not see commands that are imported on use, and fills the lines that click's `\b`
keeps (decision 86).
"""

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click

from convgpu.cli.__main__ import main as convgpu
from convgpu.daemon.__main__ import main as convgpud
from convgpu.runtime import __main__ as runtime


def escaped(text: str) -> str:
    """Return text in which roff sees no escape, no request and no hyphen that is not one of ASCII."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in lines)


def paragraphs(text: str) -> Iterator[str]:
    r"""Yield roff for a help text: paragraphs are filled, those behind click's `\b` stay as they are."""
    for block in cleandoc(text).split("\n\n"):
        first, _, rest = block.partition("\n")
        if first.strip() == "\b":
            yield f".PP\n.nf\n{escaped(rest)}\n.fi"
        else:
            yield f".PP\n{escaped(' '.join(block.split()))}"


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield roff for the options, as `--help` shows them."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield f".TP\n\\fB{escaped(record[0])}\\fP\n{escaped(record[1])}"


def page(command: click.Command, context: click.Context, section: int, version: str, date: str) -> str:
    """Return the man page of a command."""
    name = context.command_path.replace(" ", "-")
    lines = [f'.TH "{name.upper()}" "{section}" "{date}" "ConvGPU {version}" "ConvGPU"', ".SH NAME"]
    lines.append(f"{escaped(name)} \\- {escaped(command.get_short_help_str(100).rstrip('.'))}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines += [".SH SYNOPSIS", f"\\fB{escaped(usage)}\\fP", ".SH DESCRIPTION"]
    lines += paragraphs(command.help or "")
    lines += [".SH OPTIONS", *options(command, context)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for word, child in children(command, context):
            lines.append(
                f".TP\n\\fB{escaped(f'{name}-{word}')}\\fP({section})\n{escaped(child.get_short_help_str(100))}"
            )
    if command.epilog:
        lines += [".SH EXIT STATUS", *paragraphs(command.epilog)]
    parent = f"{context.parent.command_path.replace(' ', '-')}({section})" if context.parent else "convgpu-runtime(8)"
    return "\n".join([*lines, ".SH SEE ALSO", escaped(parent)]) + "\n"


def children(command: click.Group, context: click.Context) -> list[tuple[str, click.Command]]:
    """Return the commands of a group that are shown, by name."""
    found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [(name, child) for name, child in found if child is not None and not child.hidden]


def pages(
    command: click.Command, context: click.Context, section: int, version: str, date: str
) -> Iterator[tuple[str, str]]:
    """Yield files and pages of a command and of all below it."""
    name = f"{context.command_path.replace(' ', '-')}.{section}"
    yield f"man{section}/{name}", page(command, context, section, version, date)
    if isinstance(command, click.Group):
        for word, child in children(command, context):
            below = click.Context(child, info_name=word, parent=context)
            yield from pages(child, below, section, version, date)


def runtime_page(version: str, date: str) -> str:
    """Return the page of `convgpu-runtime`, whose help is its module's docstring."""
    head, _, rest = cleandoc(runtime.__doc__ or "").partition("\n\n")
    lines = [f'.TH "CONVGPU-RUNTIME" "8" "{date}" "ConvGPU {version}" "ConvGPU"', ".SH NAME"]
    lines.append(f"convgpu\\-runtime \\- {escaped(' '.join(head.split()).partition(': ')[2].rstrip('.'))}")
    lines += [".SH DESCRIPTION", *paragraphs(rest.rpartition("\n\n")[0])]
    return "\n".join([*lines, ".SH SEE ALSO", "convgpu\\-install(1), dockerd(8)"]) + "\n"


def write(folder: Path, version: str, date: str) -> None:
    """Write all pages to FOLDER/man1 and FOLDER/man8."""
    daemon = click.Context(convgpud, info_name="convgpud", show_default=True)
    found = {
        **dict(pages(convgpu, click.Context(convgpu, info_name="convgpu"), 1, version, date)),
        **dict(pages(convgpud, daemon, 8, version, date)),
        "man8/convgpu-runtime.8": runtime_page(version, date),
    }
    for name, text in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
