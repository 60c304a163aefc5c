"""Builds the C parts that tests use; workers of pytest-xdist that ask for the same at once wait for each other."""

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOOK = ROOT / "hook/build"
DRIVER = ROOT / "tests/fakes/build"
PORTER = ROOT / "porter/build"


def make(folder: str, *settings: str, lock: str = "") -> None:
    """Make a folder of this checkout; one that is made for the same lock or, without one, with the same settings waits.

    Args:
        folder: where the Makefile is.
        settings: NAME=VALUE of the Makefile's variables.
        lock: a name for the settings, where they make a long one.
    """
    locks = ROOT / "build/make"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / (lock or "-".join((folder, *settings)).replace("/", "-"))).open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", ROOT / folder, *settings], check=True)


def build_driver() -> Path:
    """Bring the simulated driver up to date; return its folder."""
    make("tests/fakes")
    return DRIVER


def build_hook(sanitizer: str = "", name: str = "") -> Path:
    """Bring the hook up to date; return its folder.

    Args:
        sanitizer: what the compiler gets as -fsanitize=; the hook without it is built too.
        name: the folder of the sanitized one below hook/build.
    """
    make("hook")
    if not sanitizer:
        return HOOK
    make("hook", f"SANITIZE={sanitizer}", f"BUILD=build/{name}")
    return HOOK / name


def build_porter(sanitizer: str = "", name: str = "") -> Path:
    """Bring the porter up to date; return the program. Arguments as for build_hook."""
    if not sanitizer:
        make("porter")
        return PORTER / "convgpu-porter"
    make("porter", f"SANITIZE={sanitizer}", f"BUILD=build/{name}")
    return PORTER / name / "convgpu-porter"
