"""The quick path of `convgpu submit` gives sbatch what the whole command gives it, and leaves it what it cannot do."""

import subprocess
import sys
from pathlib import Path

import pytest

from convgpu.cli.cluster import quick_submit

CONFIG = """\
SLURM_VERSION = 24.11.5
JobSubmitPlugins = lua
SelectTypeParameters = CR_CPU,MULTIPLE_SHARING_GRES_PJ,ONE_TASK_PER_SHARING_GRES
GresTypes = gpu,shard,gpumem,net
Prolog[0] = /etc/slurm/convgpu/prolog
Epilog[0] = /etc/slurm/convgpu/epilog
"""
PROGRAMS = {
    "scontrol": f"cat <<'END'\n{CONFIG}END\n",
    "sinfo": "printf 'n1|gpu:2,shard:32|batch\\nn2|gpu:2,shard:32|batch\\n'\n",
    "sbatch": 'for word; do echo "$word"; done >>"$LOG"; cat >>"$LOG"; echo "12;cluster"\n',
}
WHOLE = "import sys; from convgpu.cli.__main__ import start; start()"
QUICK = "import sys; from convgpu.cli.cluster.quick_submit import submit_quickly as s; s(sys.argv[2:]); sys.exit(9)"
USUAL = (
    ("--gpu-memory", "8g", "image", "python", "train.py"),
    ("--nodes=2", "--gpus", "2", "--gpu-memory=1500m", "--time", "4h", "-v", "/a b:/c", "image", "echo", "it's", "$x"),
    ("--no-requeue", "--partition=batch", "--cpus-per-gpu=4", "--name", "n", "--output=o", "--sbatch=--hold", "image"),
)
UNUSUAL = (
    ("--help",),
    ("--json", "image"),
    ("--dry-run", "image"),
    ("--gpu-memory", "auto", "image"),
    ("--gpu-memory", "17g", "image"),
    ("--gpus", "3", "image"),
    ("--gpus", "0", "image"),
    ("--partition", "batsh", "image"),
    ("--time", "4:00:00", "image"),
    ("--network", "5gbit", "image"),
    ("--container-image", "image"),
    ("-d", "image"),
    ("train.py",),
    ("--gpu-memory",),
)


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with programs that answer as Slurm's; `log` there is what sbatch got."""
    for name, text in PROGRAMS.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
    return tmp_path


def submit(slurm: Path, program: str, words: tuple[str, ...]) -> tuple[int, str, str]:
    """Return the exit status, what is printed, and what sbatch got."""
    log = slurm / "log"
    log.unlink(missing_ok=True)
    settings = {"PATH": f"{slurm}:/usr/bin:/bin", "LOG": str(log), "CONVGPU_SLURM": str(slurm / "absent")}
    command = [sys.executable, "-c", program, "submit", *words]
    done = subprocess.run(command, env=settings, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, log.read_text() if log.exists() else ""


@pytest.mark.parametrize("words", USUAL)
def test_a_usual_line_is_submitted_as_by_the_whole_command(slurm: Path, words: tuple[str, ...]) -> None:
    quick = submit(slurm, QUICK, words)
    assert quick == submit(slurm, WHOLE, words)
    assert quick[:2] == (0, "job 12: convgpu logs -f 12 · convgpu jobs 12 · convgpu cancel 12\n")


@pytest.mark.parametrize("words", UNUSUAL)
def test_what_is_unusual_submits_nothing(slurm: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("PATH", f"{slurm}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(slurm / "log"))
    monkeypatch.setenv("CONVGPU_SLURM", str(slurm / "absent"))
    quick_submit.submit_quickly(words)
    assert not (slurm / "log").exists()


def test_what_sbatch_refuses_is_left_to_the_whole_command(slurm: Path) -> None:
    (slurm / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    assert submit(slurm, QUICK, ("image",)) == (9, "", "")


def test_a_job_whose_number_cannot_be_printed_is_not_submitted_twice(slurm: Path) -> None:
    program = QUICK.replace("s(sys.argv", "sys.stdout = open('/dev/full', 'w'); s(sys.argv")
    status, _, log = submit(slurm, program, ("image",))
    assert (status != 0, log.count("--job-name")) == (True, 1)


def test_it_imports_nothing_dear(slurm: Path) -> None:
    program = "import sys; import convgpu.cli.cluster.quick_submit; print(*sorted(sys.modules))"
    loaded = submit(slurm, program, ())[1].split()
    assert not {"click", "subprocess", "dataclasses", "json", "msgspec", "shlex"} & set(loaded)
