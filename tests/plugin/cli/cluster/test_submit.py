"""`convgpu submit`: what is refused before Slurm is asked."""

import pytest
from click.testing import CliRunner

from convgpu.cli.__main__ import main

REFUSED = {
    "a script in place of an image": (
        ("submit", "train.sh"),
        "Error: train.sh is a script, and it is missing, not an image: write IMAGE before the command",
        2,
    ),
    "no image": (("submit", "--gpu-memory", "1g"), "Error: no IMAGE is named.", 2),
    "no size": (("submit", "--gpu-memory", "much", "image"), "'much' is not a size", 2),
    "a time without a unit": (("submit", "--time", "90", "image"), "90 of what? Write 90m, 90h", 2),
    "Docker's network": (
        ("submit", "--network", "host", "image"),
        "'host' is no bandwidth: write whole Gbit/s, 5gbit. Docker's network is --net host",
        2,
    ),
    "no bandwidth at all": (
        ("submit", "--network", "0", "image"),
        "0 is no bandwidth: write whole Gbit/s, 5gbit, or leave out --network",
        2,
    ),
    "less bandwidth than none": (
        ("submit", "--network=-1gbit", "image"),
        "'-1gbit' is no bandwidth: write whole Gbit/s, 5gbit.",
        2,
    ),
    "a detached container": (
        ("submit", "-d", "image"),
        "Error: a job runs in the background anyhow: leave out -d",
        2,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_slurm_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, text, status = REFUSED[name]
    monkeypatch.setenv("PATH", "/nonexistent")  # a command of Slurm would be missing
    done = CliRunner().invoke(main, words, prog_name="convgpu")
    assert (text in done.stderr, done.exit_code) == (True, status), done.stderr
    assert isinstance(done.exception, SystemExit)
