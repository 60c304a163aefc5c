"""The data root of an Engine that has the image convgpu/demo and the plugin `convgpu`, not enabled, made once.

To load the image and to compress the plugin takes an Engine many seconds, to copy what it made of them takes one.
"""

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from docker_engine import Engine

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/plugin"
CACHE = ROOT / ".cache/engine-data"


def _key() -> str:
    """Return what the data depends on: the Engine, the image, the plugin."""
    commands = (["dockerd", "--version"], ["docker", "image", "inspect", "-f", "{{.Id}}", "convgpu/demo"])
    parts = [subprocess.check_output(command, text=True) for command in commands]
    parts += [(BUILT / name).read_text() for name in ("VERSION", "config.json")]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _make(folder: Path) -> None:
    engine = Engine()
    try:
        engine.load("convgpu/demo")
        engine("plugin", "create", "convgpu", str(BUILT))
        engine.end()
        subprocess.run(["cp", "-a", engine.directory / "data", folder], check=True)
    finally:
        engine.close()


def pushed_images(registry: Path, push: Callable[[], None]) -> None:
    """Give a registry's folder what `push` pushes to it: copied, if the same was pushed before.

    To compress, push and read two plugins takes twenty seconds of a core.
    """
    script = (ROOT / "scripts/release/plugin-image").read_bytes()
    folder = CACHE.with_name("registry-data") / (_key() + hashlib.sha256(script).hexdigest()[:8])
    if folder.exists():
        shutil.copytree(folder, registry, dirs_exist_ok=True)
        return
    push()
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir(parents=True)
    shutil.copytree(registry, folder.with_suffix(".new"))
    folder.with_suffix(".new").rename(folder)


def prepared_data() -> Path:
    """Return the folder to be copied; workers of pytest-xdist that want it at once wait for the first."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / _key()
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for older in CACHE.glob("*/"):
                shutil.rmtree(older)
            _make(folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return folder
