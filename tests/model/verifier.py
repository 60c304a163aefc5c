"""Spin's verifiers of the models in docs/model; a result is known until the model, spin or the compiler changes."""

import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "docs/model"
CHECKED = ROOT / "build/models"
"""What verifiers printed, by all that it depends on, as a compiler's cache has it."""
FLAGS = {"gate.pml": ("-DCOLLAPSE",), "turns.pml": ("-DCOLLAPSE",)}
"""Of the compiler: a verifier that packs its states takes longer, and a fraction of the memory."""


def check(model: str, *definitions: str, optimise: str = "-O1") -> str:
    """Generate, compile and run a verifier, which looks for violated assertions and for processes that wait for ever.

    Args:
        model: the name of its file in docs/model.
        definitions: NAME or NAME=VALUE of the model's macros.
        optimise: -O0 compiles three times as fast, and the verifier is then half as fast.

    Returns:
        What it printed.
    """
    sources = "\0".join(path.read_text() for path in sorted(MODELS.glob("*.pml")))  # one includes another
    commands = (
        ["spin", "-a", *(f"-D{definition}" for definition in definitions), model],
        ["gcc", optimise, "-w", "-DSAFETY", "-DMEMLIM=4096", *FLAGS.get(model, ()), "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    )
    digest = hashlib.sha256("\0".join((_versions(), sources, *map(str, commands))).encode()).hexdigest()
    known = CHECKED / digest
    if not known.exists():
        CHECKED.mkdir(parents=True, exist_ok=True)
        fresh = known.with_suffix(f".{os.getpid()}")
        fresh.write_text(_run(commands))
        fresh.rename(known)
    return known.read_text()


@functools.cache
def _versions() -> str:
    commands = (["spin", "-V"], ["gcc", "--version"])
    return "".join(subprocess.check_output(command, text=True) for command in commands)


def _run(commands: tuple[list[str], ...]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        for path in MODELS.glob("*.pml"):  # by name, so that a result is known in each checkout
            Path(folder, path.name).symlink_to(path)
        for command in commands:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
