"""The built hook in programs of other C libraries: 2.23 and 2.31, whose dlsym is in libdl.so.2, and 2.41."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from built import make
from compiled import COMPILED, SOURCES, compile_c
from daemon import Daemon, wait_until
from scripted_session import GIB, MIB

CONTEXT = 526 * MIB
LIBRARY = "lib/x86_64-linux-gnu"
OLD = ("xenial", "bullseye")


@pytest.fixture(scope="module", params=[*OLD, "trixie"])
def release(request: pytest.FixtureRequest) -> Path:
    """Folder of a Debian's C library."""
    folder = os.environ.get("CONVGPU_GLIBC")
    if not folder:
        pytest.skip("needs the C libraries of other distributions: scripts/test gets them by scripts/install/glibc")
    release = Path(folder) / str(request.param)
    if not release.exists() and release.name == "xenial":
        pytest.skip("scripts/install/glibc could not fetch it")
    return release


@pytest.fixture(scope="module")
def world(release: Path, simulated_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a simulated driver and a program for that C library; new ones run with a newer one as they are."""
    if release.name not in OLD:
        compile_c(folder := tmp_path_factory.mktemp("new") / "life", SOURCES / "standalone/life.c", "-ldl")
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (folder.parent / name).symlink_to(simulated_driver / name)
        return folder.parent
    folder = COMPILED.with_name(f"glibc-{release.name}")  # stays, as what `make` makes does
    folder.mkdir(parents=True, exist_ok=True)
    places = [f"-B{release}/usr/{LIBRARY}", f"-L{release}/usr/{LIBRARY}", f"-L{release}/{LIBRARY}"]
    compiler = ["gcc", f"--sysroot={release}", *places]
    libraries = ["-l:libdl.so.2", "-l:libpthread.so.0"]
    if list(release.glob(f"usr/{LIBRARY}/libpthread_nonshared.a")):  # has pthread_atfork in 2.23
        libraries.append("-l:libpthread_nonshared.a")
    make(
        "tests/fakes", f"BUILD={folder}", f"CC={' '.join(compiler)}", f"LDFLAGS={' '.join(libraries)}", lock=folder.name
    )
    flags = ["-std=c11", "-D_GNU_SOURCE", "-o", folder / "life"]
    subprocess.run([*compiler, *flags, SOURCES / "standalone/life.c", *libraries], check=True)
    return folder


@pytest.fixture
def run(release: Path, world: Path) -> Iterator[object]:
    started: list[subprocess.Popen[str]] = []

    def begin(folder: Path, *words: str) -> "subprocess.Popen[str]":
        [loader] = {path.resolve() for path in release.glob(f"**/{LIBRARY}/ld-linux-x86-64.so.2")}
        command = [loader, "--library-path", f"{world}:{loader.parent}", world / "life", *words]
        environment = {
            "LD_PRELOAD": str(folder / "libconvgpu.so"),
            "SIMULATED_GPU_DIRECTORY": str(folder / "driver"),
        }
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_a_limit_holds_with_that_library(daemon: Daemon, release: Path, run) -> None:
    folder = daemon.container("a", memory="3g")
    process = run(folder, f"hold={GIB}")
    wait_until(lambda: daemon.state("a")["devices"][0]["usage"] == GIB + CONTEXT, "it holds its memory")
    mapped = {line.split()[-1] for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines()}
    assert [path for path in mapped if Path(path).name.startswith(("libc.so", "libc-"))]
    assert all(path.startswith(str(release)) for path in mapped if "/libc.so" in path or "/libc-" in path)
    refused = run(folder, f"hold={2 * GIB}")
    errors = refused.communicate(timeout=120)[1]
    assert "convgpu: cuMemAlloc of 2GiB on device 0 rejected: it would exceed the limit" in errors
    assert errors.splitlines()[-1] == "alloc: error 2"
