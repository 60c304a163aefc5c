"""`convgpu slurm`: makes a Slurm cluster one with ConvGPU, and says whether it is."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from convgpu.cli.cluster import cluster_settings, slurm_client
from convgpu.cli.cluster.controller import controller
from convgpu.cli.cluster.words import whole_gigabits
from convgpu.cli.connect.discovery import open_scheduler
from convgpu.cli.connect.engine_endpoint import current
from convgpu.cli.terminal.errors import Refused, Unavailable
from convgpu.cli.terminal.findings import STYLES, Finding
from convgpu.cli.terminal.options import checked, volume_driver
from convgpu.cli.terminal.output import echo, echo_all, width
from convgpu.cluster import configuration, faults
from convgpu.cluster.settings import NodeCard, Settings
from convgpu.protocol.durations import parse_duration
from convgpu.protocol.records import Device
from convgpu.protocol.sizes import format_size, parse_size

# NVIDIA's driver says here which device node a GPU has; the index of NVML may be another one.
_DRIVER: Final = Path("/proc/driver/nvidia/gpus")
_ROUNDING: Final = 0.01  # of a promise, which is whole bytes of the host's pool
_PORTS: Final = Path("/sys/class/net")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def slurm() -> None:
    """Set up and check a Slurm cluster whose nodes have ConvGPU."""


def _whole_seconds(text: str) -> str:
    return str(max(1, round(parse_duration(text))))


def _sources() -> configuration.Sources:
    """Return what is shipped for Slurm: beside this package, or in a checkout."""
    package = Path(configuration.__file__).parent / "deploy"
    folder = package if package.is_dir() else Path(configuration.__file__).parents[3] / "deploy/slurm"
    names = ("job_submit.lua", "convgpu.conf", "convgpu-controller.conf")
    library = str(package.parents[2])
    return configuration.Sources(str(folder), sys.executable, library, *(_text(folder / name) for name in names))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _device_files(given: Sequence[str], devices: Sequence[Device]) -> dict[str, str]:
    """Return the device node of each GPU by UUID."""
    if given:
        names = {name: device.uuid for device in devices for name in (device.uuid, str(device.index))}
        rows = [word.partition("=") for word in given]
        unknown = next((name for name, _, _ in rows if name not in names), None)
        if unknown is not None:
            raise Refused(f"ConvGPU knows no GPU {unknown!r}.\nSee: convgpu devices")
        return {names[name]: file for name, _, file in rows}
    found = {}
    for path in _DRIVER.glob("*/information"):
        text = path.read_text(encoding="utf-8")
        uuid, minor = re.search(r"GPU UUID:\s*(\S+)", text), re.search(r"Device Minor:\s*(\d+)", text)
        if uuid and minor:
            found[uuid[1]] = f"/dev/nvidia{minor[1]}"
    return found


def _cards(given: Sequence[str], devices: Sequence[Device]) -> tuple[NodeCard, ...]:
    by_uuid = {device.uuid: device for device in devices}
    files = {uuid: file for uuid, file in _device_files(given, devices).items() if uuid in by_uuid}
    if not files:
        raise Refused("which device node each GPU has is not known here.\nName it: --card 0=/dev/nvidia0 for each GPU")
    rows = sorted((file, uuid) for uuid, file in files.items())
    return tuple(NodeCard(uuid, file, by_uuid[uuid].capacity) for file, uuid in rows)


def _host_memory() -> int:
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0


def _write(directory: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if path.parent != directory else 0o644)


@slurm.command()
@click.option("--node", required=True, metavar="NAME", help="This node's name in Slurm.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default="/etc/slurm",
    show_default=True,
    help="Where slurm.conf lies.",
)
@click.option(
    "--granule",
    default="1g",
    show_default=True,
    callback=checked(lambda text: str(parse_size(text))),
    metavar="SIZE",
    help="What Slurm counts in: one shard. 256m lets small jobs ask for what they need.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(1),
    default=1.0,
    show_default=True,
    metavar="RATIO",
    help="What may be promised of a card, as a multiple of its capacity.",
)
@click.option("--card", multiple=True, metavar="GPU=FILE", help="A GPU's device node; may be given again.")
@click.option(
    "--grace",
    default="30s",
    show_default=True,
    callback=checked(_whole_seconds),
    metavar="TIME",
    help="What a program has for its checkpoint, from SIGTERM to SIGKILL.",
)
@click.option(
    "--network",
    callback=checked(whole_gigabits),
    metavar="RATE",
    help="What Slurm counts of its network: 25gbit; 0: nothing.  [default: its fastest port]",
)
@click.option("--jobs", default="/run/convgpu/jobs", show_default=True, metavar="DIR", help="Files of running jobs.")
@click.option("--dry-run", is_flag=True, help="Print the files; write nothing.")
@volume_driver
def setup(node: str, directory: Path, **given: Any) -> None:
    """Write Slurm's configuration for this node's GPUs, and print what is left to do.

    It adds the node to those that are in DIRECTORY already, so that one folder can serve all nodes.
    """
    settings = _settings(node, directory, given)
    _check_host_memory(settings, node)
    try:
        texts = configuration.files(settings, str(directory), _sources())
    except ValueError as error:
        raise Refused(str(error)) from error
    if given["dry_run"]:
        click.echo("\n".join(f"# {directory / name}\n{text}" for name, text in texts.items()))
        return
    _write(directory, texts)
    for line in configuration.explain_cards(settings, node):
        echo(line)
    network = settings.networks[node]
    echo(f"network: {network} Gbit/s" if network else "network: not counted; --network 25gbit has Slurm count it")
    echo(f"Written to {directory}: {', '.join(texts)}. In slurm.conf, on all hosts:")
    echo(f"  Include {directory}/convgpu.conf")
    echo(f"  NodeName={node} ... {configuration.node_words(settings, node)}")
    echo("Then restart slurmctld and slurmd, and type: convgpu slurm check")


def _settings(node: str, directory: Path, given: Mapping[str, Any]) -> Settings:
    """Return the settings that are in the folder, with this node and these choices."""
    path = directory / "convgpu.json"
    before = cluster_settings.read_settings(path) if path.exists() else Settings({})
    engine, driver, sizes = current().host, given["driver"], (int(given["granule"]), given["threshold"])
    base = Settings(before.nodes, *sizes, given["jobs"], engine, driver, int(given["grace"]), before.networks)
    devices = open_scheduler(None, driver).devices().devices
    cards = _cards(given["card"], devices)
    _check_promise(base.threshold, [device for device in devices if device.uuid in {card.uuid for card in cards}])
    network = int(given["network"]) if given["network"] else _fastest_port()
    return configuration.with_node(base, node, cards, network)


def _check_promise(threshold: float, devices: Sequence[Device]) -> None:
    """Refuse to have Slurm promise more of a GPU than ConvGPU does: its jobs would wait for each other's memory."""
    least = min((max(device.promised, device.capacity) / device.capacity for device in devices), default=1.0)
    if threshold > least + _ROUNDING:
        raise Refused(
            f"ConvGPU promises {least:.3g} times a GPU here, less than --threshold {threshold:g}.\n"
            f"Have memory leave them: CONVGPU_OVERSUBSCRIBE={threshold:g} (docs/suspension.md), or choose a smaller one"
        )


def _fastest_port() -> int:
    """Return the Gbit/s of the fastest port of this host that is connected; 0 where none says it."""
    found = [0]
    for port in _PORTS.glob("*/device"):  # those of hardware
        try:
            found.append(int((port.parent / "speed").read_text(encoding="ascii")) // 1000)  # in Mbit/s, -1: unknown
        except (OSError, ValueError):
            continue  # it is not connected
    return max(found)


def _check_host_memory(settings: Settings, node: str) -> None:
    needed = sum(int(row.capacity * settings.threshold) - row.capacity for row in settings.nodes[node])
    if needed > _host_memory() // 2:
        raise Refused(
            f"a threshold of {settings.threshold:g} takes {needed >> 30} GiB of the host's memory, more than half."
            "\nChoose a smaller --threshold"
        )


@slurm.command()
def check() -> None:
    """Say whether this cluster is one with ConvGPU; the exit code is 1 if it is not."""
    problems = list(faults.faults(slurm_client.config()))
    findings = [Finding("slurm", "fail", problem) for problem in problems]
    if not problems and not slurm_client.rewrites_requests():
        folder = slurm_client.settings_path().parent
        mend = f"Put that of {folder} beside the controller's slurm.conf, and type: scontrol reconfigure"
        findings.append(
            Finding("slurm", "fail", "Slurm's job_submit.lua is not ConvGPU's: shares would be split", mend)
        )
    sizes = [size for size in slurm_client.sizes(None) if size.cards]
    if not sizes:
        findings.append(Finding("nodes", "fail", "no node has GPUs", "On each node: convgpu slurm setup --node NAME"))
    findings += _strangers([size.name for size in sizes])
    if not findings:
        cards = sum(size.cards for size in sizes)
        findings = [
            Finding("slurm", "ok", "version, job_submit.lua, selection, Prolog and Epilog are as they have to be"),
            Finding("nodes", "ok", f"{len(sizes)} nodes with {cards} GPUs, each in shards of {_granule()}"),
        ]
    for finding in findings:
        seen, mended = finding.lines(width())
        echo_all([*((line, STYLES[finding.state]) for line in seen), *((line, "") for line in mended)])
    if any(finding.state == "fail" for finding in findings):
        sys.exit(1)


def _strangers(nodes: Sequence[str]) -> list[Finding]:
    """Say which nodes with GPUs the cluster's settings do not know, or that there are no settings."""
    try:
        known = cluster_settings.settings().nodes
    except Unavailable as error:
        seen, _, mend = error.message.partition("\n")
        return [Finding("nodes", "fail", seen, mend)]
    strange = [name for name in nodes if name not in known]
    if not strange:
        return []
    mend = f"On each of them: convgpu slurm setup --node NAME --directory {slurm_client.settings_path().parent}"
    return [Finding("nodes", "fail", f"convgpu.json does not know {', '.join(strange)}", mend)]


slurm.add_command(controller)


def _granule() -> str:
    return format_size(cluster_settings.settings().granule)
