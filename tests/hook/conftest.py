"""The hook, the simulated driver and the test programs, built once; processes under the hook."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from built import build_driver, build_hook
from compiled import SOURCES, Sanitizer, compile_c
from daemon import DRIVER, Daemon, running_daemon
from hooked_program import SUCCESS, Program
from scripted_scheduler import ScriptedScheduler
from scripted_session import GIB, MIB, UUIDS

SANITIZERS = {"address": ("address,undefined", ("libasan.so", "libubsan.so")), "thread": ("thread", ("libtsan.so",))}
"""What the compiler is told, and the runtimes that are preloaded."""
SANITIZED = {
    "address": "arrays backing contexts gate graphs launches listing memory moving observer pools process meminfo"
    " reconnect settling virtual_memory descriptors outliving",
    "thread": "busy_threads contexts gate launches listing memory pools process meminfo reconnect descriptors"
    " outliving",
}
"""Modules (`test_NAME`) whose tests run with the sanitized hook too: more of the hook than its lookups is in them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "hook" not in metafunc.fixturenames:
        return
    module = Path(metafunc.module.__file__).stem.removeprefix("test_")
    builds = ["plain", *(name for name, modules in SANITIZED.items() if module in modules.split())]
    if metafunc.definition.get_closest_marker("forks") and "address" in builds:
        # The allocator of gcc 12's ASan takes its locks over a fork as they are: if another thread had one, the child
        # waits for it for ever (seen once, 2026-11-21). Sanitizers of newer compilers mend that.
        builds.remove("address")
    if metafunc.config.getoption("fast"):
        builds = ["plain"]
    metafunc.parametrize("hook", builds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def hook(request: pytest.FixtureRequest) -> Path:
    """Folder of the built hook."""
    if request.param == "plain":
        return build_hook()
    return build_hook(SANITIZERS[request.param][0], request.param)


@functools.cache
def _runtime(name: str) -> str:
    return subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()


@pytest.fixture
def sanitizer(hook: Path, tmp_path: Path) -> Iterator[Sanitizer]:
    """How processes are started under the hook; at the end, nothing may have been reported."""
    _flags, runtimes = SANITIZERS.get(hook.name, ("", ()))
    found = [_runtime(name) for name in runtimes]
    reports = tmp_path / "reports"
    reports.mkdir()
    options = f"log_path={reports}/report:detect_leaks=0:die_after_fork=0"
    yield Sanitizer(found, {f"{name}_OPTIONS": options for name in ("ASAN", "UBSAN", "TSAN")} if found else {})
    assert [report.read_text() for report in sorted(reports.iterdir())] == []


@pytest.fixture(scope="session")
def simulated_driver() -> Path:
    """Folder of the simulated driver."""
    return build_driver()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, simulated_driver: Path) -> Path:
    """Folder of the compiled test programs."""
    folder = tmp_path_factory.mktemp("programs")
    driver = simulated_driver / "libcuda.so.1"
    program = [*sorted(SOURCES.glob("commands/*.c"))]
    compile_c(folder / "program", *program, "-ldl")
    (folder / "linked").mkdir()
    compile_c(folder / "linked/program", "-DLINKED", *program, driver, "-ldl")
    compile_c(folder / "lookups", SOURCES / "standalone/lookups.c", "-ldl")
    compile_c(folder / "smi", SOURCES / "standalone/smi.c", "-ldl")
    compile_c(
        folder / "linked-smi", "-DLINKED", SOURCES / "standalone/smi.c", simulated_driver / "libnvidia-ml.so.1", "-ldl"
    )
    (folder / "drawing").mkdir()
    compile_c(folder / "drawing/libnvidia-ml.so.1", "-shared", "-fPIC", SOURCES / "libraries/drawing.c")
    compile_c(folder / "libnext.so", "-shared", "-fPIC", SOURCES / "libraries/next.c", "-ldl")
    compile_c(folder / "libthreadless.so", "-shared", "-fPIC", SOURCES / "libraries/threadless.c", "-ldl")
    include = f"-I{SOURCES.parents[2] / 'hook/include'}"
    compile_c(folder / "libinterrupting.so", "-shared", "-fPIC", include, SOURCES / "libraries/interrupting.c")
    compile_c(folder / "libdetaining.so", "-shared", "-fPIC", SOURCES / "libraries/detaining.c")
    version_script = f"-Wl,--version-script={SOURCES}/libraries/versioned.map"
    compile_c(folder / "libversioned.so", "-shared", "-fPIC", version_script, SOURCES / "libraries/versioned.c")
    (folder / "newer").mkdir()
    compile_c(folder / "newer/libcuda.so.1", "-shared", "-fPIC", "-Wl,-Bsymbolic", SOURCES / "libraries/newer.c")
    return folder


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Folder of two simulated devices of 16 GiB whose contexts take 512 MiB."""
    folder = tmp_path / "devices"
    folder.mkdir()
    lines = [f"{uuid} {16 * GIB}" for uuid in UUIDS]
    (folder / "devices").write_text("\n".join([*lines, "settle_us_per_gib=0", f"context_size={512 * MIB}", ""]))
    (folder / "state").touch()
    return folder


@pytest.fixture
def scheduler(tmp_path: Path, hook: Path) -> Iterator[ScriptedScheduler]:
    with ScriptedScheduler(tmp_path / "scheduler.sock", hook / "libconvgpu-page.so") as listening:
        yield listening


@pytest.fixture
def daemon(tmp_path: Path, hook: Path, simulated_driver: Path) -> Iterator[Daemon]:
    """A real scheduler, with two simulated devices of 16 GiB, from the built hook and driver."""
    assert simulated_driver == DRIVER
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", f"--libraries={hook}") as running:
        yield running


Start = Callable[..., Program]
Join = Callable[..., Program]


@pytest.fixture
def start(
    hook: Path, programs: Path, simulated_driver: Path, devices: Path, tmp_path: Path, sanitizer: Sanitizer
) -> Iterator[Start]:
    """Start the test program behind a lookup; `environment` is added to a small one."""
    running: list[Program] = []

    def begin(lookup: str = "dlsym", preload: tuple[Path, ...] = (), **environment: str) -> Program:
        if lookup == "dlsym" and sanitizer.runtimes:
            lookup = "linked"  # the one lookup that a sanitizer leaves (hook/Makefile)
        command = [programs / "linked/program"] if lookup == "linked" else [programs / "program", lookup]
        settings = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(simulated_driver),
            "LD_PRELOAD": ":".join(map(str, [hook / "libconvgpu.so", *preload])),
            **sanitizer.options,
            "SIMULATED_GPU_DIRECTORY": str(devices),
            "CONVGPU_SOCKET": str(tmp_path / "scheduler.sock"),
        }
        settings |= environment
        if settings["LD_PRELOAD"]:
            settings["LD_PRELOAD"] = ":".join([*sanitizer.runtimes, settings["LD_PRELOAD"]])
        program = Program([str(word) for word in command], settings, tmp_path)
        running.append(program)
        return program

    yield begin
    for program in running:
        program.kill()


@pytest.fixture
def join(start: Start) -> Join:
    """Start the test program in the place of a container, whose folder is given, with a context on device 0."""

    def begin(folder: Path, lookup: str = "dlsym", **environment: str) -> Program:
        settings = {
            "LD_PRELOAD": str(folder / "libconvgpu.so"),
            "LD_LIBRARY_PATH": str(folder / "driver"),
            "CONVGPU_SOCKET": "",
            "SIMULATED_GPU_DIRECTORY": "",
        }
        program = start(lookup, **settings | environment)
        assert program.call("init 0").code == SUCCESS
        assert program.call(f"use {program.call('retain 0').number}").code == SUCCESS
        return program

    return begin
