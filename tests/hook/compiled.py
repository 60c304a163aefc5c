"""Compiling the C programs of these tests, and running them under sanitizers."""

import functools
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "programs"
INCLUDED = (ROOT / "hook/src", ROOT / "hook/include", SOURCES)
COMPILED = ROOT / "build/test-programs"
"""What was compiled before, by everything that goes into it, for all workers of pytest-xdist and later runs."""


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Compile one of the test programs, unless the same was compiled before."""
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread"]
    command = ["gcc", *flags, f"-I{ROOT}/hook/src", f"-I{ROOT}/hook/include", *map(str, arguments)]
    known = COMPILED / _digest(command, [Path(argument) for argument in arguments if isinstance(argument, Path)])
    if not known.exists():
        subprocess.run([*command, "-o", target], check=True)
        COMPILED.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target, part := known.with_suffix(f".{os.getpid()}"))
        part.rename(known)
        return target
    return Path(shutil.copy2(known, target))


def _digest(command: list[str], files: list[Path]) -> str:
    digest = hashlib.sha256(_included().encode())
    digest.update("\0".join(command).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


@functools.cache
def _included() -> str:
    """Return the digest of the compiler and of all that a test program may include."""
    digest = hashlib.sha256(subprocess.check_output(["gcc", "--version"]))
    for folder in INCLUDED:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Sanitizer:
    """`runtimes`: to be preloaded before the hook; `options`: for their environment. Empty without one."""

    runtimes: list[str]
    options: dict[str, str]
