"""Unit tests in C of the parts that choose what a program sees."""

import subprocess
from pathlib import Path

import pytest
from compiled import SOURCES, compile_c

HOOK = SOURCES.parents[2] / "hook/src"
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(*command: str | Path) -> tuple[int, str, str]:
    finished = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return finished.returncode, finished.stdout, finished.stderr


@pytest.mark.parametrize("part", ["visible_list", "environment"])
def test_part(tmp_path: Path, part: str) -> None:
    sources = (SOURCES / f"checks/check_{part}.c", HOOK / f"visibility/{part}.c", HOOK / "gpus/uuid_text.c")
    assert run(compile_c(tmp_path / "check", *SANITIZED, *sources)) == (0, "", "")


UUIDS = [f"GPU-0123abcd-0000-0000-0000-00000000000{number}" for number in range(4)]
INFORMATION = (
    "Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96.00.00.00.00\n"
    "Bus Location: \t 0000:{bus:02x}:00.0\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
)


class Host:
    """What the kernel's driver and the container's runtime show, as files."""

    def __init__(self, folder: Path) -> None:
        self.cards, self.files = folder / "gpus", folder / "dev"
        self.files.mkdir()
        sources = (SOURCES / "checks/check_present_gpus.c", HOOK / "gpus/present_gpus.c", HOOK / "gpus/uuid_text.c")
        self._program = compile_c(folder / "check", *SANITIZED, *sources)

    def add(self, number: int, uuid: str | None = None, *, here: bool = True) -> None:
        card = self.cards / f"0000:{number + 15:02x}:00.0"
        card.mkdir(parents=True)
        text = INFORMATION.format(uuid=uuid or UUIDS[number], bus=number + 15, minor=number)
        (card / "information").write_text(text)
        if here:
            (self.files / f"nvidia{number}").touch()

    def present(self, room: int = 63) -> list[str]:
        code, output, errors = run(self._program, self.cards, self.files, str(room))
        assert (code, errors) == (0, "")
        return sorted(output.split())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_cards_whose_files_are_here(host: Host) -> None:
    for number in range(4):
        host.add(number, here=number in (1, 3))
    (host.files / "nvidia7").touch()  # of no card
    assert host.present() == [UUIDS[1], UUIDS[3]]


def test_what_is_not_known(host: Host) -> None:
    assert host.present() == []  # no such driver
    host.add(0)
    assert host.present() == [UUIDS[0]]
    host.add(1, "GPU-????????-????-????-????-????????????", here=False)
    assert host.present() == [UUIDS[0]]
    host.add(2, "GPU-????????-????-????-????-????????????")
    assert host.present() == []


def test_a_card_that_says_nothing(host: Host) -> None:
    host.add(0)
    (host.cards / "0000:99:00.0").mkdir()
    assert host.present() == []
    (host.cards / "0000:99:00.0/information").write_text("Model: none\n")
    assert host.present() == []


def test_more_cards_than_there_is_room_for(host: Host) -> None:
    for number in range(3):
        host.add(number)
    assert host.present(3) == UUIDS[:3]
    assert host.present(2) == []
