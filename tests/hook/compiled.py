"""Compiling the C programs of these tests."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "src"


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Compile one of the test programs."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]
    includes = [f"-I{ROOT}/hook/src", f"-I{ROOT}/hook/include"]
    subprocess.run(["gcc", *flags, *includes, "-o", target, *map(str, arguments)], check=True)
    return target
