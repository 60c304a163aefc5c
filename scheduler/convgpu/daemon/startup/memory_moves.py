"""The part of a start that makes memory leave: the porter, its pool, and the elastic processes."""

import asyncio
import os
from pathlib import Path

from convgpu.core.oversubscription import Oversubscription, plan
from convgpu.daemon.gpu.nvml import find_nvml
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.residency.elastic_sessions import ElasticSessions
from convgpu.daemon.residency.host_pool import plan_pool
from convgpu.daemon.residency.pool_files import PoolFiles
from convgpu.daemon.residency.porter import Porter, PorterFiles, pool_path
from convgpu.daemon.sessions.registry import SessionRegistry
from convgpu.daemon.settings import Settings
from convgpu.daemon.startup.opened_host import OpenedHost
from convgpu.protocol.layout import DRIVER_FOLDER

_DRIVER = "libcuda.so.1"


def prepare_moves(
    host: OpenedHost, driver: MachineDriver, sessions: SessionRegistry, settings: Settings, terms: Oversubscription
) -> tuple[ElasticSessions, Porter]:
    """Return what moves memory; the porter starts with the first elastic process.

    Raises:
        ValueError: a setting that cannot be.
    """
    pool = plan_pool(settings.host_memory, _host_memory(), terms.capacity, terms.threshold)
    loop = asyncio.get_running_loop()
    elastic = ElasticSessions(driver, sessions, pool, loop.time)
    files = PorterFiles(settings.porter, _find_driver(host, settings), PoolFiles(pool_path(settings.directory)))
    porter = Porter(loop, files, elastic.report, elastic.greet)
    elastic.use(porter)
    return elastic, porter


def plan_oversubscription(host: OpenedHost, settings: Settings) -> Oversubscription:
    """Return what may be promised of the devices.

    Raises:
        ValueError: a setting that makes no sense on this host; the text names one that does.
    """
    capacity = {row.uuid: row.nominal for row in host.capacities}
    memory = _host_memory() if settings.host_memory is None else None
    return plan(settings.oversubscribe, settings.granule, capacity, memory)


def _host_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _find_driver(host: OpenedHost, settings: Settings) -> str:
    """Return the CUDA driver: it lies beside NVML. Without a file of that name the loader searches for it."""
    if host.simulated:
        return str(settings.directory / DRIVER_FOLDER / _DRIVER)
    nvml = find_nvml((settings.host_root, Path("/")))
    beside = nvml.with_name(_DRIVER) if nvml is not None else None
    return str(beside) if beside is not None and beside.exists() else _DRIVER
