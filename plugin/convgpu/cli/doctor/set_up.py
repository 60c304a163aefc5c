"""What of ConvGPU is set up on this host, and `convgpu doctor --set-up`, which does the rest."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from convgpu.cli.connect.engine import Engine
from convgpu.cli.connect.requests_http import RequestsHttp
from convgpu.cli.setup import cdi_file, docker_script, install, runtime_setting
from convgpu.cli.setup.lifecycle import plugin_image
from convgpu.cli.terminal.findings import Finding

_PACKAGED: Final = tuple(Path(folder, "docker/cli-plugins") for folder in ("/usr/libexec", "/usr/lib"))


def set_up(driver: str) -> None:
    """Install the plugin of this release and `docker convgpu`, where they are missing.

    Raises:
        Refused: this package names no image.
        Unavailable: the image cannot be had, or the plugin does not come up.
    """
    engine = Engine.connect(RequestsHttp)
    if plugin_image.look_up(engine, driver) is None:
        plugin_image.install(driver, (), grant=False)
    if not _has_command(_folders()):
        install.make_link(docker_script.plugins_folder(system=False) / docker_script.LINK)


def judge_set_up(info: Mapping[str, Any]) -> Finding:
    """Return which ways in beside `convgpu run` are set up, and how the others are."""
    specifications = (Path(folder) / cdi_file.NAME for folder in info.get("CDISpecDirs") or ())
    ways = {
        "docker convgpu": (_has_command(_folders()), "convgpu install"),
        "--runtime convgpu": (runtime_setting.NAME in (info.get("Runtimes") or ()), "convgpu install runtime --write"),
        "--device convgpu.io/memory=SIZE": (any(map(cdi_file.is_ours, specifications)), "convgpu install cdi"),
    }
    there = [name for name, (is_there, _) in ways.items() if is_there]
    missing = [f"{name}: {command}" for name, (is_there, command) in ways.items() if not is_there]
    return Finding(
        "ways in", "ok", ", ".join(["convgpu run", *there]), "\n".join(f"more by {line}" for line in missing)
    )


def _folders() -> Iterable[Path]:
    return (*(docker_script.plugins_folder(system=system) for system in (False, True)), *_PACKAGED)


def _has_command(folders: Iterable[Path]) -> bool:
    return any(docker_script.is_our_link(folder / docker_script.LINK) for folder in folders)
