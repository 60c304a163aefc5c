"""Each way in which a program can find a CUDA call leads to the hook, and to the right form of the call."""

import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from call_list import GATED, HOOKED, NVML, PASSED, driven
from hooked_program import SUCCESS, Program

LOOKUPS = ("linked", "dlsym", "default", "proc1", "proc2")

DEFAULT, LEGACY, PER_THREAD = 0, 1, 2

Start = Callable[..., Program]


def test_the_list_is_read() -> None:
    assert (len(HOOKED) - len(GATED) - len(PASSED), len(GATED), len(PASSED)) == (143, 158, 65)
    assert HOOKED["cuMemAlloc_v2"] == "cuMemAlloc"


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_every_hooked_call_is_found_in_the_hook(start: Start, simulated_driver: Path, lookup: str) -> None:
    """A linked program finds ours even if the driver lacks the call, which then returns NOT_FOUND."""
    found = start(lookup).call("where")
    there = HOOKED if lookup == "linked" else driven(simulated_driver)
    expected = {symbol: f"libconvgpu.so:{symbol}" if symbol in there else "none" for symbol in HOOKED}
    assert found.values == tuple(f"{symbol}={place}" for symbol, place in expected.items())


def test_without_the_hook_they_are_in_the_driver(start: Start, simulated_driver: Path) -> None:
    found, there = start("proc2", LD_PRELOAD="").call("where"), driven(simulated_driver)
    expected = {symbol: f"libcuda.so.1:{symbol}" if symbol in there else "none" for symbol in HOOKED}
    assert found.values == tuple(f"{symbol}={place}" for symbol, place in expected.items())


@pytest.mark.parametrize(
    ("base", "version", "symbol"),
    [
        ("cuMemAlloc", 2000, "cuMemAlloc"),
        ("cuMemAlloc", 3020, "cuMemAlloc_v2"),
        ("cuArrayCreate", 3010, "cuArrayCreate"),
        ("cuArrayCreate", 12000, "cuArrayCreate_v2"),
        ("cuMemAlloc", 12080, "cuMemAlloc_v2"),
        ("cuMemAllocManaged", 13000, "cuMemAllocManaged"),
        ("cuDevicePrimaryCtxRelease", 10020, "cuDevicePrimaryCtxRelease"),
        ("cuDevicePrimaryCtxRelease", 11000, "cuDevicePrimaryCtxRelease_v2"),
        ("cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset"),
        ("cuDevicePrimaryCtxReset", 12000, "cuDevicePrimaryCtxReset_v2"),
        ("cuCtxCreate", 3010, "cuCtxCreate"),
        ("cuCtxCreate", 11030, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
        ("cuCtxDestroy", 3020, "cuCtxDestroy"),
        ("cuCtxDestroy", 4000, "cuCtxDestroy_v2"),
        ("cuGetProcAddress", 11030, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ("cuMemPoolCreate", 11020, "cuMemPoolCreate"),
        ("cuGraphInstantiate", 10000, "cuGraphInstantiate"),
        ("cuGraphInstantiate", 11080, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiate", 13000, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiateWithFlags", 13000, "cuGraphInstantiateWithFlags"),
    ],
)
@pytest.mark.parametrize("flags", [DEFAULT, LEGACY, PER_THREAD])
def test_the_asked_version_decides_the_form(start: Start, base: str, version: int, symbol: str, flags: int) -> None:
    program = start()
    assert program.call(f"ask {base} {version} {flags}").values == ("0", f"libconvgpu.so:{symbol}")
    first_form = program.call(f"ask1 {base} {version} {flags}")
    assert (first_form.code, first_form.values) == (SUCCESS, ("-1", f"libconvgpu.so:{symbol}"))


BASES = [
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuLaunchKernel",
    "cuStreamEndCapture",
    "cuEventRecord",
]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("flags", "suffix"), [(DEFAULT, ""), (LEGACY, ""), (PER_THREAD, "_ptsz")])
def test_the_asked_stream_decides_the_twin(start: Start, base: str, flags: int, suffix: str) -> None:
    assert start().call(f"ask {base} 12000 {flags}").values == ("0", f"libconvgpu.so:{base}{suffix}")


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("cuMemAllocManaged 5000 0", ("2", "none")),
        ("cuNoSuchCall 12000 0", ("1", "none")),
        ("cuMemAlloc_v2 12000 0", ("1", "none")),
        ("cuMemAlloc 99990 0", ("-1", "none")),
        ("cuMemAlloc 12000 64", ("-1", "none")),
        ("cuEventQuery 12000 0", ("0", "libcuda.so.1:cuEventQuery")),
        ("cuEventQuery 12000 2", ("0", "libcuda.so.1:cuEventQuery")),
    ],
)
def test_what_the_driver_says_passes_unchanged(start: Start, question: str, values: tuple[str, ...]) -> None:
    with_hook = start().call(f"ask {question}")
    assert with_hook == start(LD_PRELOAD="").call(f"ask {question}")
    assert with_hook.values == values


def test_a_form_to_come_is_left_alone_and_said(start: Start, programs: Path) -> None:
    program = start(LD_LIBRARY_PATH=str(programs / "newer"))
    assert program.call("ask cuMemAlloc 12000 0").values == ("0", "libconvgpu.so:cuMemAlloc_v2")
    assert program.call("ask cuMemAlloc 99000 0").values == ("0", "libcuda.so.1:cuMemAlloc_v3")
    [line] = program.end()
    assert line.startswith("convgpu: this driver has a form of cuMemAlloc that convgpu does not know yet")


def test_exported_symbols_are_the_list(hook: Path) -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", hook / "libconvgpu.so"], check=True, capture_output=True, text=True
    ).stdout
    exported = [line.split()[-1] for line in listing.splitlines()]
    assert sorted(exported) == sorted([*HOOKED, *NVML, "dlsym", "dlvsym"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere glibc has no older names to ask for")
def test_images_with_an_old_glibc_can_load_it(hook: Path) -> None:
    symbols = subprocess.run(
        ["objdump", "-T", hook / "libconvgpu.so"], check=True, capture_output=True, text=True
    ).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
    assert max(versions) <= (2, 17)
