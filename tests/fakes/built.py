"""Builds the C parts that tests use; workers of pytest-xdist that ask for the same at once wait for each other."""

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOOK = ROOT / "hook/build"
DRIVER = ROOT / "tests/fakes/build"
PORTER = ROOT / "porter/build"


def _make(folder: str, *settings: str) -> None:
    locks = ROOT / "build/make"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / "-".join((folder, *settings)).replace("/", "-")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", ROOT / folder, *settings], check=True)


def build_driver() -> Path:
    """Bring the simulated driver up to date; return its folder."""
    _make("tests/fakes")
    return DRIVER


def build_hook(sanitizer: str = "", name: str = "") -> Path:
    """Bring the hook up to date; return its folder.

    Args:
        sanitizer: what the compiler gets as -fsanitize=; the hook without it is built too.
        name: the folder of the sanitized one below hook/build.
    """
    _make("hook")
    if not sanitizer:
        return HOOK
    _make("hook", f"SANITIZE={sanitizer}", f"BUILD=build/{name}")
    return HOOK / name


def build_porter(sanitizer: str = "", name: str = "") -> Path:
    """Bring the porter up to date; return the program. Arguments as for build_hook."""
    if not sanitizer:
        _make("porter")
        return PORTER / "convgpu-porter"
    _make("porter", f"SANITIZE={sanitizer}", f"BUILD=build/{name}")
    return PORTER / name / "convgpu-porter"
