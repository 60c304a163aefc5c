"""Compiling the C programs of these tests, and running them under sanitizers."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "programs"


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Compile one of the test programs."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]
    includes = [f"-I{ROOT}/hook/src", f"-I{ROOT}/hook/include"]
    subprocess.run(["gcc", *flags, *includes, "-o", target, *map(str, arguments)], check=True)
    return target


@dataclass(frozen=True)
class Sanitizer:
    """`runtimes`: to be preloaded before the hook; `options`: for their environment. Empty without one."""

    runtimes: list[str]
    options: dict[str, str]
