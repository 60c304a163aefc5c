"""The scripts that keep the house: sizes, and the notes of a release."""

import importlib.util
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path, PurePath
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str) -> ModuleType:
    loader = SourceFileLoader(Path(name).name.replace("-", "_"), str(SCRIPTS / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_what_is_too_large_is_found():
    house = load("checks/check-house")
    long_python = "def f():\n" + "    pass\n" * 40
    long_c = "static int f(int a)\n{\n" + "    a++;\n" * 58 + "}\n"
    assert list(house.text_faults(PurePath("a.py"), long_python)) == ["a.py:1 f: a function of 41 lines"]
    assert list(house.text_faults(PurePath("a.c"), "int x;\n" + long_c)) == ["a.c:2: a function of 61 lines"]
    assert list(house.text_faults(PurePath("a.h"), "\n" * 401)) == ["a.h: 401 lines"]
    assert list(house.folder_faults([PurePath(f"a/{number}") for number in range(16)])) == ["a/: 16 files"]


def test_wide_lines_of_documents_are_found_but_not_tables_and_output():
    house = load("checks/check-house")
    wide = "word " * 25
    text = f"{wide}\n| {wide} |\n```\n{wide}\n```\nhttps://{'x' * 130}\n"
    assert list(house.text_faults(PurePath("a.md"), text)) == ["a.md:1: wider than 120 columns"]


def test_what_is_as_it_should_be_is_not_found():
    house = load("checks/check-house")
    for path, text in {"a.py": "def f():\n" + "    pass\n" * 39, "a.c": "int f(void)\n{\n" + "\n" * 57 + "}\n"}.items():
        assert list(house.text_faults(PurePath(path), text)) == []
    assert list(house.folder_faults([PurePath(f"a/{number}") for number in range(15)])) == []


def test_types_are_worked_out_where_there_is_one_thread():
    """msgspec crashes where two threads use a type for the first time (docs/decisions/0229)."""
    root = SCRIPTS.parent
    files = [file for folder in ("plugin", "scheduler") for file in (root / folder).rglob("*.py")]
    first_uses = re.compile(
        r"\bjson\.decode\([^=]*\btype=(?:\w+\[)?(?:_?[A-Z]|\w+\.answer_type)"  # of classes, not of dict or list
        r"|^[ ]+.*\bjson\.Decoder\((?!request\.answer_type)",
        re.MULTILINE,
    )
    found = [(str(file.relative_to(root)), first_uses.findall(file.read_text())) for file in files]
    found = [(name, uses) for name, uses in found if uses]
    assert len(files) > 400
    assert found == []


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n- a\n"


def test_notes_become_the_section_of_a_release():
    notes = load("release-notes")
    assert notes.released(CHANGELOG, ["One\nnote.\n", "w " * 80], "0.1.0", "2026-11-22") == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-22\n\n### Changes\n- One note.\n"
        f"- {'w ' * 58}w\n  {'w ' * 20}w\n\n### Added\n- a\n"
    )


@pytest.mark.parametrize(
    ("changelog", "version"), [("", "0.1.0"), (CHANGELOG, "next"), ("## [1.0.0]" + CHANGELOG, "1.0.0")]
)
def test_a_release_that_cannot_be_is_refused(changelog, version):
    with pytest.raises(SystemExit):
        load("release-notes").released(changelog, [], version, "2026-11-22")


NOTES = {"Fix: a\n": "0.1.1", "Something.\n": "0.2.0", "Breaking: b\n": "0.2.0"}


@pytest.mark.parametrize(("note", "version"), NOTES.items())
def test_the_version_follows_the_notes(note, version):
    notes = load("release-notes")
    changelog = CHANGELOG + "\n## [0.1.0] - 2026-11-22\n"
    assert notes.following(changelog, ["Fix: a\n", note], "0.1.0") == version
    assert notes.following(changelog.replace("0.1.0", "1.4.2"), ["Breaking: b\n", note], "1.4.2") == "2.0.0"
    assert notes.following(CHANGELOG, [note], "0.1.0") == "0.1.0"  # nothing was released yet
    with pytest.raises(SystemExit, match="too low"):
        notes.released(changelog, ["Something.\n"], "0.1.1", "2026-11-23")


def test_a_section_has_its_kinds_in_order_and_can_be_printed():
    notes = load("release-notes")
    text = "### Breaking\n- b\n\n### Changes\n- One note.\n\n### Fixes\n- a\n"
    assert notes.section(["Fix: a\n", "One note.\n", "Breaking: b\n"]) == text
    made = notes.released(CHANGELOG + "\n## [0.1.0] - day\n\nold\n", ["Fix: a\n"], "0.1.1", "day")
    assert notes.printed(made, "0.1.1") == "### Fixes\n- a\n\n### Added\n- a\n"
    assert notes.printed(made, "0.1.0") == "old\n"
