"""The program `convgpu`. Nothing is collected while its modules are imported: most of it lives as long as we do."""

import gc


def start() -> None:
    """Start the command line; `LazyGroup.get_command` collects again once the command is imported."""
    gc.disable()
    from convgpu.cli.__main__ import start as begin  # noqa: PLC0415 - that is what is not collected

    begin()
