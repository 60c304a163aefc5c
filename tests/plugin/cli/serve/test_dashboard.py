"""The secret of `convgpu dashboard --token-file`."""

from pathlib import Path

import pytest

from convgpu.cli.serve.dashboard import read_token
from convgpu.cli.terminal.errors import Unavailable


def test_the_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = read_token(file)
    assert len(token) == 32
    assert read_token(file) == token
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("a" * 16, 0o644, "can be read by others.\nType: chmod 600"),
        ("", 0o600, "holds no secret"),
        ("short", 0o600, "holds no secret"),
        ("a" * 20 + "/../", 0o600, "holds no secret"),
        ("a" * 20 + "é", 0o600, "cannot be read"),
    ],
)
def test_what_is_no_secret_is_refused(tmp_path: Path, text: str, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(Unavailable, match=problem.replace(".", r"\.")):
        read_token(file)


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)cannot be made .*Name another --token-file"):
        read_token(tmp_path / "none" / "token")
