# SPDX-License-Identifier: Apache-2.0
"""Puts what is written in C into the wheel (hatchling's build hook): hook, page, porter and the simulated driver.

They are built where the checkout or the sdist has their sources and this machine a compiler; without one the wheel is
for any machine, and lacks only what runs without Docker: `convgpu demo --processes` and `convgpud`. The plugin's image
has its own (Dockerfile). With CONVGPU_PLUGIN_IMAGE in the environment the wheel names the image of its plugin, which
`convgpu install plugin` then takes.
"""

import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("hook", "porter", "tests/fakes")
NATIVE = {
    "hook/build/libconvgpu.so": "libconvgpu.so",
    "hook/build/libconvgpu-page.so": "libconvgpu-page.so",
    "hook/build/libconvgpu-safety.so": "libconvgpu-safety.so",
    "porter/build/convgpu-porter": "convgpu-porter",
    "tests/fakes/build/libcuda.so.1": "simulated/libcuda.so.1",
    "tests/fakes/build/libnvidia-ml.so.1": "simulated/libnvidia-ml.so.1",
    "tests/fakes/build/gpu-hold": "simulated/gpu-hold",
}
"""Product of a Makefile -> its place in the package, below convgpu/native."""


def tag(programs: list[bytes], machine: str) -> str:
    """Return the wheel's tag: any Python 3, and the oldest glibc that has all symbols of the programs (PEP 600)."""
    minor = max(int(found) for program in programs for found in re.findall(rb"GLIBC_2\.(\d+)", program))
    return f"py3-none-manylinux_2_{minor}_{machine}"


class NativeHook(BuildHookInterface[Any]):
    """See the module."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add files to a wheel; an editable installation finds them in the checkout."""
        root, image = Path(self.root), os.environ.get("CONVGPU_PLUGIN_IMAGE")
        made = root / "build/wheel"
        if version == "editable":
            return
        if image:
            made.mkdir(parents=True, exist_ok=True)
            (made / "release.json").write_text(json.dumps({"plugin_image": image}) + "\n")
            build_data["force_include"][str(made / "release.json")] = "convgpu/release.json"
        if not (root / "hook/Makefile").exists():
            return
        if shutil.which("make") is None or shutil.which(os.environ.get("CC", "gcc")) is None:
            self.app.display_warning("no compiler: the wheel is built without what runs without Docker")
            return
        programs = []
        for place, program in self._build(root, made / "native").items():
            build_data["force_include"][str(program)] = f"convgpu/native/{place}"
            programs.append(program.read_bytes())
        build_data["pure_python"] = False
        build_data["tag"] = tag(programs, platform.machine())

    def _build(self, root: Path, folder: Path) -> dict[str, Path]:
        """Return the programs without debug information, by their places."""
        for sources in FOLDERS:
            subprocess.run(["make", "-s", "-C", str(root / sources)], check=True)
        found = {}
        for product, place in NATIVE.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["strip", "--strip-debug", "-o", folder / place, root / product], check=True)
            found[place] = folder / place
        return found
