"""The data root of an Engine that has the image convgpu/demo and the plugin `convgpu`, not enabled, made once.

To load the image and to compress the plugin takes an Engine many seconds, to copy what it made of them takes one.
"""

import fcntl
import hashlib
import shutil
import subprocess
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
