"""NVIDIA's own runtime, linked statically and shared, finds the hook at the lookup that it uses.

The simulated driver has none of the undocumented tables that the runtime asks for next, so it goes no further here;
what it does with memory is tested on a card (tests/gpu).
"""

import importlib.metadata
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from call_list import HOOKED
from compiled import SOURCES, compile_c
from hooked_program import Program

Start = Callable[..., Program]
PACKAGES = {"12": "nvidia-cuda-runtime-cu12", "13": "nvidia-cuda-runtime"}


@pytest.fixture(scope="module", params=["12 static", "12 shared", "13 static", "13 shared"])
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of the runtime; beside it a driver that can do nothing and says what it was asked for."""
    version, linked = request.param.split()
    files = importlib.metadata.files(PACKAGES[version])
    assert files is not None, "the runtime is not installed: make venv"
    name = "libcudart_static.a" if linked == "static" else f"libcudart.so.{version}"
    [library] = [Path(str(file.locate())).resolve() for file in files if file.name == name]
    folder = tmp_path_factory.mktemp("runtime")
    libraries = ["-ldl", "-lpthread", "-lrt"] if linked == "static" else [f"-Wl,-rpath,{library.parent}"]
    compile_c(folder / "program", SOURCES / "standalone/runtime.c", library, *libraries)
    compile_c(folder / "libcuda.so.1", "-shared", "-fPIC", SOURCES / "libraries/asking.c")
    return folder / "program"


def run(runtime: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    settings = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(runtime.parent)} | environment
    return subprocess.run([runtime], env=settings, capture_output=True, text=True, check=True, timeout=120)


def test_its_first_call_is_the_hooks(runtime: Path, hook: Path) -> None:
    done = run(runtime, LD_PRELOAD=str(hook / "libconvgpu.so"), CONVGPU_SOCKET="/nowhere/scheduler.sock")
    [line] = done.stderr.splitlines()
    assert line.startswith("convgpu: no scheduler at /nowhere/scheduler.sock (no such socket)")
    assert done.stdout.splitlines()[-1] != "cudaMalloc returned 0"
    assert run(runtime).stderr == ""


def test_whatever_it_asks_for_that_takes_memory_is_the_hooks(runtime: Path, start: Start) -> None:
    lines = [line for line in run(runtime).stdout.splitlines() if line[:2] == "cu" and line[2].isupper()]
    asked = {tuple(line.split()) for line in lines}
    assert len(asked) > 400
    program, bases = start(), set(HOOKED.values())
    found = {question: program.call("ask " + " ".join(question)).values[1] for question in asked}
    ours = {question for question, where in found.items() if where.startswith("libconvgpu.so:")}
    assert ours == {question for question in asked if question[0] in bases and found[question] != "none"}
    assert {"cuMemAlloc", "cuMemAllocAsync", "cuMemFree", "cuMemGetInfo", "cuLaunchKernel", "cuGraphLaunch"} <= {
        base for base, _since, _flags in ours
    }
    for base, since, flags in ours:
        symbol = found[base, since, flags].partition(":")[2]
        assert HOOKED[symbol] == base
        assert symbol.endswith(("_ptsz", "_ptds")) == (flags == "2")
