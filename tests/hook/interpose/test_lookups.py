"""dlsym and dlvsym: ours for hooked calls that the real lookup finds, untouched for everything else."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Look = Callable[..., tuple[int, str]]


@pytest.fixture
def look(hook: Path, programs: Path, simulated_driver: Path) -> Look:
    def run(*words: str, behind: bool = False, before: bool = False, hooked: bool = True) -> tuple[int, str]:
        libraries = [hook / "libconvgpu.so"] * hooked
        libraries = [programs / "libnext.so"] * before + libraries + [programs / "libnext.so"] * behind
        finished = subprocess.run(
            [programs / "lookups", *words],
            check=False,
            capture_output=True,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "LD_PRELOAD": ":".join(map(str, libraries)),
                "LD_LIBRARY_PATH": f"{simulated_driver}:{programs}",
            },
        )
        assert finished.stderr == ""
        return finished.returncode, finished.stdout.strip()

    return run


def test_dlvsym_gives_the_hook_for_a_version_that_is_there(look: Look) -> None:
    assert look("libversioned.so", "cuMemAlloc_v2", "LIBCUDA") == (0, "libconvgpu.so:cuMemAlloc_v2")
    assert look("libversioned.so", "cuMemAlloc_v2", "LIBCUDA", hooked=False) == (0, "libversioned.so:cuMemAlloc_v2")


@pytest.mark.parametrize(
    "question",
    [
        ("libversioned.so", "cuMemAlloc_v2", "LIBCUDA_99"),
        ("libversioned.so", "cuMemFree_v2", "LIBCUDA"),
        ("libversioned.so", "cuMemFree_v2"),
        ("libcuda.so.1", "cuNoSuchCall"),
        ("libm.so.6", "cuMemAlloc_v2"),
        ("libcuda.so.1", "cuEventQuery"),
        ("libm.so.6", "cos"),
        ("libc.so.6", "getppid", "GLIBC_2.2.5"),
        ("libc.so.6", "getppid", "GLIBC_1.0"),
        ("default", "getppid"),
    ],
)
def test_every_other_answer_is_the_real_one(look: Look, question: tuple[str, ...]) -> None:
    assert look(*question) == look(*question, hooked=False)


def test_the_global_scope_has_no_cuda_without_a_driver(look: Look) -> None:
    code, text = look("default", "cuMemAlloc_v2")
    assert (code, text.split()[0]) == (1, "none")


def test_nvml_is_hooked_where_it_is(look: Look) -> None:
    assert look("libnvidia-ml.so.1", "nvmlDeviceGetMemoryInfo") == (0, "libconvgpu.so:nvmlDeviceGetMemoryInfo")
    assert look("libnvidia-ml.so.1", "nvmlDeviceGetName") == (0, "libnvidia-ml.so.1:nvmlDeviceGetName")
    assert look("libversioned.so", "nvmlDeviceGetMemoryInfo", "LIBCUDA")[1] == "libconvgpu.so:nvmlDeviceGetMemoryInfo"
    for question in (("default", "nvmlDeviceGetMemoryInfo"), ("libcuda.so.1", "nvmlDeviceGetMemoryInfo")):
        code, text = look(*question)
        assert (code, text.split()[0]) == (1, "none")


@pytest.mark.parametrize("name", ["dlsym", "dlvsym"])
def test_the_lookups_themselves_are_hooked(look: Look, name: str) -> None:
    assert look("default", name) == (0, f"libconvgpu.so:{name}")
    assert look("libc.so.6", name) == (0, f"libconvgpu.so:{name}")


@pytest.mark.parametrize("version", [(), ("GLIBC_2.2.5",)])
def test_next_of_the_program_starts_behind_the_program(look: Look, version: tuple[str, ...]) -> None:
    assert look("next", "getppid", *version, behind=True)[1] == (
        "libnext.so:getppid" if not version else "libc.so.6:getppid"
    )


@pytest.mark.parametrize("version", [(), ("GLIBC_2.2.5",)])
@pytest.mark.parametrize("side", ["behind", "before"])
def test_next_of_a_preloaded_library_starts_behind_it(look: Look, side: str, version: tuple[str, ...]) -> None:
    assert look("preloaded", "getppid", *version, **{side: True}) == (0, "libc.so.6:getppid")


def test_a_library_before_the_hook_finds_the_hook_next(look: Look) -> None:
    assert look("preloaded", "cuMemAlloc_v2", before=True) == (0, "libconvgpu.so:cuMemAlloc_v2")


def test_a_library_behind_the_hook_does_not(look: Look) -> None:
    assert look("preloaded", "cuMemAlloc_v2", behind=True)[0] == 1
