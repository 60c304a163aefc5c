"""Who can start the programs of an installation, and who can change them."""

import os
import sys
from pathlib import Path

import pytest

from convgpu.cli.setup import host_programs
from convgpu.cli.terminal.errors import Refused


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a home that others can read, whose interpreter is the system's."""
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    monkeypatch.setattr(host_programs, "__file__", "/bin/sh")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder not in {Path("/"), Path("/tmp")}:
            folder.chmod(0o755)
    file = tmp_path / "home/bin/convgpu"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o755)
    return file


def test_a_closed_home_is_named(program):
    host_programs.check_reachable(program)
    home = program.parents[1]
    home.chmod(0o700)
    with pytest.raises(Refused, match=rf"cannot be reached by other users: {home} is closed"):
        host_programs.check_reachable(program)
    home.chmod(0o755)
    program.chmod(0o700)
    with pytest.raises(Refused, match=f"{program} is closed"):
        host_programs.check_reachable(program)


def test_a_link_into_a_closed_folder_is_followed(program):
    link = program.parents[1] / "link"
    link.symlink_to(program)
    program.parent.chmod(0o700)
    with pytest.raises(Refused, match=f"{program.parent} is closed"):
        host_programs.check_reachable(link)
    program.parent.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root")
def test_the_engine_runs_nothing_that_others_can_change(program):
    host_programs.check_owner(program)
    program.parent.chmod(0o775)
    with pytest.raises(Refused, match="they would become root"):
        host_programs.check_owner(program)
    program.parent.chmod(0o755)
    os.chown(program, 65534, 65534)
    with pytest.raises(Refused, match=f"others can change {program}"):
        host_programs.check_owner(program)
