"""The rules of a site: valid files, and mistakes with their lines."""

import pytest

from convgpu.authz.site.rules import Rules, RulesError, parse_rules
from convgpu.authz.site.rules_file import RulesFile

WHOLE = """
mode = "audit"
administrators = ["alice", "local"]
default_limit = "1g"

[users."*"]
largest_limit = "4g"

[users.bob]
largest_limit = "2GiB"
total_quota = 3221225472

[labels."team=vision"]
total_quota = "8g"

[[exempt]]
image = "gcr.io/cadvisor/cadvisor"
rules = ["privileged"]

[[exempt]]
label = "trusted"
users = ["bob"]
"""


def test_a_complete_file():
    rules = parse_rules(WHOLE)
    assert (rules.mode, rules.administrators, rules.default_limit) == ("audit", ("alice", "local"), "1g")
    assert rules.allowance("bob").total_quota == 3 << 30
    assert rules.allowance("carol").largest_limit == 4 << 30
    assert rules.exempts("privileged", "carol", "gcr.io/cadvisor/cadvisor:v0.49", "sha256:1", {})
    assert not rules.exempts("capability", "carol", "gcr.io/cadvisor/cadvisor:v0.49", "sha256:1", {})
    assert rules.exempts("capability", "bob", "x", "", {"trusted": "yes"})
    assert not rules.exempts("capability", "carol", "x", "", {"trusted": "yes"})


def test_an_empty_file_is_the_default():
    assert parse_rules("") == Rules()


@pytest.mark.parametrize(
    ("pattern", "image", "image_id", "fits"),
    [
        ("nginx", "nginx", "", True),
        ("nginx", "nginx:1.27", "", True),
        ("nginx", "docker.io/library/nginx:1", "", True),
        ("nginx", "evil/nginx", "", False),
        ("nginx", "nginx2", "", False),
        ("nginx:1.27", "nginx:1.28", "", False),
        ("nginx", "nginx@sha256:1", "", True),
        ("localhost:5000/a/*", "localhost:5000/a/b:1", "", True),
        ("sha256:abc", "nginx", "sha256:abc", True),
        ("sha256:abc", "nginx", "sha256:abd", False),
    ],
)
def test_images(pattern, image, image_id, fits):
    rules = parse_rules(f'[[exempt]]\nimage = "{pattern}"')
    assert rules.exempts("privileged", "local", image, image_id, {}) is fits


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('mode = "severe"', "line 1: mode: Input should be 'enforce', 'strict', 'audit' or 'off'"),
        ('[strict]\npaths = ["/srv/../etc"]', "line 1: strict: paths: '/srv/../etc' is not an absolute path"),
        ('mode = "strict"\n[[exempt]]\nimage = "a"', "line 1: the file: in strict mode an exemption needs users"),
        ("\n\nmode =", "line 3: Invalid value"),
        ('mode = "off"\nmode = "off"', "line 2: Cannot overwrite a value"),
        ("x = 1", "line 1: x: unknown; docs/authorization.md lists what there is"),
        ("[strict]\nx = []", "line 2: strict.x: unknown; docs/strict-rules.md lists what there is"),
        ('# a\n[users.bob]\nlargest_limit = "20XB"', "line 3: users.bob.largest_limit: '20XB' is not a size: "),
        ("[users.bob]\nlargest_limit = 0", "line 2: users.bob.largest_limit: Input should be greater than 0"),
        ("[users.bob]\nlargest_limits = 1", "line 2: users.bob.largest_limits: unknown; "),
        (
            '[[exempt]]\nimage = "a"\n[[exempt]]\nusers = ["b"]',
            "line 3: exempt.2: an exemption needs an image or a label",
        ),
        ('[[exempt]]\nimage = "a"\nrules = ["x"]', "line 3: exempt.1.rules: there is no rule 'x'; the rules are "),
        ('administrators = "alice"', "line 1: administrators: "),
        ('\ndefault_limit = "much"', "line 2: default_limit: 'much' is not a size"),
        ("[users]\nbob = 1", "line 2: users.bob: "),
        ("users.bob.total_quota = true", "line 1: users.bob.total_quota: "),
        ("a = " + "[" * 5000, "line 1: "),
    ],
)
def test_errors_name_the_line(text, error):
    with pytest.raises(RulesError) as raised:
        parse_rules(text)
    assert str(raised.value).startswith(error)


def test_all_errors_are_reported():
    with pytest.raises(RulesError) as raised:
        parse_rules('mode = "x"\n\ndefault_limit = "y"')
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == ["line 1", "line 3"]


@pytest.fixture
def file(tmp_path):
    return RulesFile(tmp_path / "rules.toml")


def write(file, text):
    new = file.path.with_name("new")
    new.write_bytes(text if isinstance(text, bytes) else text.encode())
    new.replace(file.path)


def test_a_file_is_read_again_when_it_changes(file):
    assert file.rules() == Rules()
    write(file, 'mode = "audit"')
    assert file.rules().mode == "audit"
    write(file, 'mode = "off"  ')
    assert (file.rules().mode, file.error) == ("off", None)
    file.path.unlink()
    assert (file.rules(), file.error) == (Rules(), None)


@pytest.mark.parametrize("text", [b'mode = "x"', b"\xff", b"mode = ", b"x" * (2 << 20)])
def test_a_file_with_errors_changes_nothing(file, text):
    write(file, 'administrators = ["alice"]')
    before = file.rules()
    write(file, text)
    assert file.rules() is before
    assert file.error
    write(file, 'mode = "off"')
    assert (file.rules().mode, file.error) == ("off", None)


def test_a_file_with_errors_from_the_start_leaves_the_default(file):
    write(file, "nonsense")
    assert file.rules() == Rules()
    assert file.error.startswith("line 1: ")


def test_a_folder_in_place_of_the_file(file):
    file.path.mkdir()
    assert file.rules() == Rules()
    assert "directory" in file.error


@pytest.fixture
def restart(tmp_path):
    return lambda: RulesFile(tmp_path / "rules.toml", tmp_path / "in-force.toml")


STRICT = 'mode = "strict"\n[users.bob]\ntotal_quota = "6g"'


def test_a_mistake_in_the_file_leaves_the_rules_from_before_also_over_a_restart(restart):
    file = restart()
    write(file, STRICT)
    before = file.rules()
    write(file, STRICT + "\nxx = 1")
    for again in (file, restart(), restart()):
        assert again.rules() == before
        assert (again.error.splitlines()[0][:6], again.instead) == ("line 4", "the rules from before stay")
    write(file, 'mode = "audit"')
    again = restart()
    assert (again.rules().mode, again.error) == ("audit", None)


@pytest.mark.parametrize("kept", [None, b"", b"nonsense", b"\xff", STRICT.encode(), "cut"])
def test_without_rules_from_before_it_is_said_what_holds(restart, tmp_path, kept):
    """A copy that is cut off, at whatever place, would have a site without its quotas."""
    copy = tmp_path / "in-force.toml"
    write(restart(), STRICT)
    assert restart().rules().users
    whole = copy.read_bytes()
    write(restart(), STRICT + "\nxx = 1")
    assert restart().rules().users
    copy.unlink()
    for part in (kept,) if kept != "cut" else (whole[:size] for size in range(len(whole))):
        if part is not None:
            copy.write_bytes(part)
        file = restart()
        assert file.rules() == Rules(mode="strict")
        assert file.instead == "and strict rules without a list hold, and no quotas"


def test_rules_whose_file_is_gone_are_not_kept(restart):
    file = restart()
    write(file, STRICT)
    assert file.rules().mode == "strict"
    file.path.unlink()
    assert file.rules() == Rules()
    write(file, "nonsense")
    again = restart()
    assert (again.rules(), again.instead) == (Rules(), "and the defaults hold")


def test_rules_that_cannot_be_kept_are_in_force(tmp_path, caplog):
    file = RulesFile(tmp_path / "rules.toml", tmp_path / "missing/in-force.toml")
    write(file, STRICT)
    assert file.rules().mode == "strict"
    assert "cannot be written, so after a restart no earlier rules are known" in caplog.text
