"""Makes a managed plugin that has no root file system of its own: the host's /usr, and our files.

`make_plugin.py DIRECTORY` writes DIRECTORY/config.json, derived from the repository's, and DIRECTORY/rootfs. The
Python packages come from build/gpu/wheels-VERSION if that folder exists, else from the package index.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EMPTY = ("usr", "dev", "proc", "sys", "run", "tmp", "etc", "var/lib/convgpu", "host/usr")
OURS = "/opt/convgpu"
LIBRARIES = f"{OURS}/lib/convgpu"


def derive_config(config: dict) -> dict:
    """Return the repository's config with /usr from the host, so with our libraries elsewhere; the rest as it is."""
    usr = {"name": "system", "source": "/usr", "destination": "/usr", "type": "bind", "options": ["rbind", "ro"]}
    libraries = {"name": "CONVGPU_LIBRARIES", "value": LIBRARIES}
    porter = {"name": "CONVGPU_PORTER", "value": f"{LIBRARIES}/convgpu-porter"}
    simulated = {"name": "CONVGPU_SIMULATED_DRIVER", "value": f"{LIBRARIES}/simulated"}
    return config | {"mounts": [*config["mounts"], usr], "env": [*config["env"], libraries, porter, simulated]}


def host_python() -> tuple[Path, str]:
    """Return the host's own interpreter and its version: the plugin gets /usr of the host and nothing else."""
    ask = "import sys; print(*sys.version_info[:2], sep='.')"
    for path in (Path(getattr(sys, "_base_executable", sys.executable)).resolve(), Path("/usr/bin/python3")):
        if path.is_relative_to("/usr") and path.exists():
            done = subprocess.run([path, "-c", ask], check=True, capture_output=True, text=True)
            return path.resolve(), done.stdout.strip()
    raise SystemExit("no Python below /usr, which is what the plugin gets of the host")


def make_environment(directory: Path) -> None:
    """Make a virtual environment by hand: what `python -m venv` makes would name the folder it was made in."""
    python, version = host_python()
    packages = directory / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    (directory / "bin").mkdir()
    (directory / "bin/python").symlink_to(python)
    (directory / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    wheels = ROOT / f"build/gpu/wheels-{version}"
    source = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--no-compile"]
    target = ["--python-version", version, "--target", packages]
    subprocess.run([*pip, *source, *target, "-r", ROOT / "requirements.txt"], check=True)
    for half in ("plugin", "scheduler"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / half / "convgpu", packages / "convgpu", ignore=ignore, dirs_exist_ok=True)


def main() -> None:
    """Replace DIRECTORY."""
    directory = Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    rootfs = directory / "rootfs"
    for name in EMPTY:
        (rootfs / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (rootfs / name).symlink_to(f"usr/{name}")
    ours = rootfs / OURS.removeprefix("/")
    make_environment(ours)
    simulated = rootfs / LIBRARIES.removeprefix("/") / "simulated"
    simulated.mkdir(parents=True)
    for name in ("libconvgpu.so", "libconvgpu-page.so", "libconvgpu-safety.so"):
        shutil.copy(ROOT / "hook/build" / name, simulated.parent)
    shutil.copy(ROOT / "porter/build/convgpu-porter", simulated.parent)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(ROOT / "tests/fakes/build" / name, simulated)
    config = json.loads((ROOT / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(derive_config(config), indent=2))


if __name__ == "__main__":
    main()
