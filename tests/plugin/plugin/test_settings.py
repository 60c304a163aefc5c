from pathlib import Path

import pytest

from convgpu.plugin.__main__ import main
from convgpu.plugin.settings import Settings, read_possible_settings, read_settings


def test_defaults_also_for_empty_variables():
    assert read_settings({}) == Settings()
    assert read_settings({"CONVGPU_NAME": "", "CONVGPU_LOG": "", "CONVGPU_SOCKET": ""}) == Settings()


def test_every_setting():
    given = {
        "CONVGPU_NAME": "limits",
        "CONVGPU_DIRECTORY": "/d",
        "CONVGPU_SOCKET": "/s",
        "CONVGPU_ENGINE": "/e",
        "CONVGPU_DEVICES": "simulated:1GiB",
        "CONVGPU_READ_ONLY": "yes",
        "CONVGPU_RULES": "/r",
        "CONVGPU_JOBS": "/j",
        "CONVGPU_KEEP": "5m",
        "CONVGPU_READERS": "lab",
        "CONVGPU_LOG": "DEBUG",
    }
    paths = (Path("/d"), Path("/s"), Path("/e"))
    expected = Settings("limits", *paths, "simulated:1GiB", "yes", Path("/r"), Path("/j"), "5m", "lab", "debug")
    assert read_settings(given) == expected
    assert read_settings(expected.environment()) == expected
    assert expected.admin_socket == Path("/d/admin.sock")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("CONVGPU_LOG", "loud", "CONVGPU_LOG=loud: must be one of debug, info, warning, error"),
        ("CONVGPU_DIRECTORY", "d", "CONVGPU_DIRECTORY=d: must be an absolute path"),
        ("CONVGPU_READ_ONLY", "maybe", "CONVGPU_READ_ONLY=maybe: must be one of auto, yes, no"),
        ("CONVGPU_KEEP", "1w", "CONVGPU_KEEP: '1w' is not a duration: write it as 500ms, 30s, 5m, 2h or 1d"),
        ("CONVGPU_SOCKET", "s", "CONVGPU_SOCKET=s: must be an absolute path"),
    ],
)
def test_a_value_that_is_not_possible(name, value, text, capsys):
    with pytest.raises(ValueError, match=text):
        read_settings({name: value})
    assert main([], {name: value}) == 2
    assert capsys.readouterr().err == f"convgpu.plugin: {text}\n"


def test_an_option_goes_before_its_variable(capsys):
    assert main(["--log", "loud"], {"CONVGPU_LOG": "debug"}) == 2
    assert "CONVGPU_LOG=loud" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("devices", "read_only", "folders"),
    [
        ("nvml", "auto", Path("/d/volumes")),
        ("simulated:1GiB", "auto", None),
        ("simulated:1GiB", "yes", Path("/d/volumes")),
        ("nvml", "no", None),
    ],
)
def test_containers_get_their_folders_read_only(devices, read_only, folders):
    assert Settings(directory=Path("/d"), devices=devices, read_only=read_only).read_only_folders == folders


def test_what_is_possible_of_wrong_settings_is_used_to_say_what_is_wrong() -> None:
    environment = {"CONVGPU_NAME": "mine", "CONVGPU_KEEP": "long", "CONVGPU_READ_ONLY": "maybe", "CONVGPU_LOG": "debug"}
    possible = read_possible_settings(environment)
    assert possible == read_settings({"CONVGPU_NAME": "mine", "CONVGPU_LOG": "debug"})
