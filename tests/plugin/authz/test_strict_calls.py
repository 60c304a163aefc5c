"""Strict rules of calls: programs that somebody else prepared, bodies that nobody sees, and what refusals say."""

import itertools

import pytest
import strict_site
from engine_says import inspected

from convgpu.authz.checks.strict_calls import registry_of
from convgpu.authz.facts.prepared_programs import MAX_PROGRAMS, PreparedPrograms
from convgpu.authz.site.rules import parse_rules
from convgpu.authz.site.rules_file import RulesFile

EXEC, START = "/v1.41/containers/c/exec", "/v1.41/exec/e/start"
FORM = "application/x-www-form-urlencoded"


def test_who_prepared_a_program_starts_it(strict):
    assert strict.judge({}, START).rule == "strict-exec"
    strict.note(EXEC, {"Id": "e"}, "eve")
    assert strict.judge({}, START, user="eve").allow
    assert strict.judge({}, START, user="bob").rule == "strict-exec"
    assert strict.judge({}, "/v1.41/exec/e%2e/start", user="eve").rule == "strict-exec"


def test_a_program_that_was_prepared_before_the_rules_were_strict_is_refused(strict):
    for mode in ("enforce", "audit"):
        strict.rules = parse_rules(strict_site.RULES.replace("strict", mode, 1))
        strict.note(EXEC, {"Id": "e"})
        strict.rules = parse_rules(strict_site.RULES)
        assert strict.judge({}, START).rule == "strict-exec"


def test_a_prepared_program_is_judged_by_what_it_and_its_container_are(strict):
    strict.note(EXEC, {"Id": "e"})
    strict.engine.programs["e"]["ProcessConfig"]["privileged"] = True
    assert strict.judge({}, START).rule == "exec-privileged"
    strict.engine.containers["c"] = inspected({"Runtime": "convgpu", "CapAdd": ["SYS_PTRACE"]}, mounts=())
    assert strict.judge({}, START).rule == "strict-capabilities"


def test_only_so_many_programs_are_kept():
    programs = PreparedPrograms()
    for number in range(MAX_PROGRAMS + 1):
        programs.add(str(number), "eve", "strict")
    assert [programs.is_of(name, "eve", "strict") for name in ("0", "1", str(MAX_PROGRAMS))] == [False, True, True]


# Each call that would read its options from a form, or does not mind one.
FORM_CALLS = (
    ("POST", "/v1.41/images/create"),
    ("POST", "/v1.41/images/create?fromImage=a/b"),
    ("POST", "/build?t=x"),
    ("POST", "/v1.41/images/load"),
    ("POST", "/v1.41/commit?container=c"),
    ("POST", "/v1.41/containers/c/start"),
    ("POST", "/v1.41/containers/c/stop"),
    ("POST", "/v1.41/containers/c/attach?stdin=1"),
    ("PUT", "/v1.41/containers/c/archive?path=/tmp"),
    ("POST", "/v1.41/images/x/tag?repo=y"),
    ("POST", START),
)
FORM_TYPES = (
    FORM,
    FORM.upper(),
    f" {FORM}; charset=utf-8",
    f"{FORM};",
    "multipart/form-data; boundary=B",
    "Multipart/Mixed",
)
RULES = strict_site.RULES.replace('"commit"', '"commit", "build", "cp", "import", "load"')


@pytest.mark.parametrize(("call", "kind"), list(itertools.product(FORM_CALLS, FORM_TYPES)))
def test_a_form_needs_an_entry(strict, call, kind):
    strict.rules = parse_rules(RULES)
    method, uri = call
    verdict = strict.judge(b"", uri, method, headers={"content-type": kind, "content-length": "7"})
    assert (verdict.rule, "calls = ['forms']" in verdict.message) == ("strict-calls", True), verdict
    strict.rules = parse_rules(RULES.replace('"commit"', '"commit", "forms"'))
    assert "forms" not in strict.judge(b"", uri, method, headers={"content-type": kind}).message


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("cuda", "docker.io"),
        ("nvidia/cuda", "docker.io"),
        ("index.docker.io/nvidia/cuda", "docker.io"),
        ("docker.io/nvidia/cuda", "docker.io"),
        ("registry.lab:5000/cuda", "registry.lab:5000"),
        ("localhost/cuda", "localhost"),
        ("127.0.0.1:5000/a@sha256:0", "127.0.0.1:5000"),
        ("LAB/cuda", "LAB"),
        ("lab/registry.lab/cuda", "docker.io"),
        ("registry.lab", "docker.io"),
    ],
)
def test_the_registry_of_an_image_is_as_docker_reads_its_name(image, registry):
    assert registry_of(image) == registry


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("", []),
        ("registries = []", ["cuda", "lab:5/cuda", "evil.test/a", "cuda&fromImage=x.y/z"]),
        ('registries = ["docker.io", "lab:5"]', ["evil.test/a", "cuda&fromImage=x.y/z"]),
    ],
)
def test_images_are_pulled_from_the_registries_of_the_list(strict, line, refused):
    strict.rules = parse_rules(strict_site.RULES + line)
    images = ("cuda", "lab:5/cuda", "evil.test/a", "cuda&fromImage=x.y/z")
    rules = {image: strict.judge(b"", f"/v1.41/images/create?fromImage={image}").rule for image in images}
    assert rules == {image: "strict-registries" if image in refused else "nothing-to-judge" for image in images}


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-tar", "x/y", ""])
@pytest.mark.parametrize("length", [{}, {"content-length": "30"}])
@pytest.mark.parametrize("uri", ["containers/c/start", "images/create?fromImage=a", "containers/c/stop"])
def test_a_body_that_is_hidden_may_be_a_form(strict, uri, kind, length):
    """Of two headers Content-Type the Engine reads the first and shows the last."""
    verdict = strict.judge(b"", f"/v1.41/{uri}", headers={"content-type": kind, **length})
    assert verdict.rule == "body-withheld"
    assert strict.judge(b"", f"/v1.41/{uri}", headers={"content-type": kind, "content-length": "0"}).allow
    assert strict.judge(b"", f"/v1.41/{uri}", headers=length).allow  # without a type it is no form


def test_archives_and_builds_have_bodies_that_nobody_sees(strict):
    strict.rules = parse_rules(RULES)
    tar = {"content-type": "application/x-tar"}
    for method, uri in (("PUT", "/containers/c/archive?path=/tmp"), ("POST", "/build?t=x"), ("POST", "/images/load")):
        assert strict.judge(b"", uri, method, headers=tar).allow
    assert strict.judge(b"", "/images/create?fromSrc=-", headers=tar).allow


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"content-type": "text/plain", "content-length": "9"}, "no body of the type text/plain: send it with"),
        ({"content-type": "application/json", "content-length": "9"}, "has 9 bytes, and shows none"),
        ({"content-type": "application/json", "content-length": str(1 << 20)}, "a body of more than 1 MiB"),
        ({}, "a body of more than 1 MiB, or of a length that is not said (Content-Length)"),
    ],
)
def test_a_body_that_is_withheld_says_why(harness, headers, text):
    verdict = harness.judge(b"", headers=headers)
    assert (verdict.rule, text in verdict.message) == ("body-withheld", True), verdict.message


@pytest.mark.parametrize(
    ("host", "rule", "text"),
    [
        ({"ReadonlyPaths": []}, "system-paths", "Leave ReadonlyPaths: [] out"),
        ({"SecurityOpt": ["systempaths=unconfined"]}, "system-paths", "Leave systempaths=unconfined out"),
        (
            {"MaskedPaths": []},
            "strict-masks",
            "/proc/acpi without a mask, which MaskedPaths: [] means, is not in the list",
        ),
        ({"MaskedPaths": ["/proc/acpi"]}, "strict-masks", "/proc/kcore without a mask is not in the list"),
        ({"Privileged": True}, "privileged", '[[exempt]] users = ["eve"] rules = ["privileged"]'),
        ({"CapAdd": ["SYS_ADMIN"]}, "capability", '[[exempt]] users = ["eve"] rules = ["capability"]'),
        ({"CapAdd": ["SYS_NICE"]}, "strict-capabilities", "entry: capabilities = ['SYS_NICE']"),
    ],
)
def test_a_refusal_says_what_would_permit_it(strict, host, rule, text):
    verdict = strict.judge({"Image": "i", "HostConfig": host}, user="eve")
    assert (verdict.rule, text in verdict.message) == (rule, True), verdict.message


def test_each_attempt_of_the_matrix_is_told_its_entry(strict):
    """Where an entry or exemption can permit it: its text parses as a line of the rules."""
    for name, host in strict_site.attempts().items():
        verdict = strict.judge({"Image": "i", "HostConfig": host}, user="eve")
        assert " = [" in verdict.message, (name, verdict.message)


def test_guard_says_nothing_of_entries(harness):
    assert "[[exempt]]" not in harness.judge({"Image": "i", "HostConfig": {"Privileged": True}}).message


def test_a_volume_that_is_a_bind_mount_is_permitted_by_no_list(strict):
    """The Engine mounts it by its text, and copies the image's setuid files into it."""
    strict.rules = parse_rules(strict_site.RULES.replace('volumes = ["tmpfs"]', 'volumes = ["tmpfs", "bind"]'))
    for options in ({"type": "none", "o": "bind", "device": strict_site.DATA}, {"o": "ro,rbind", "device": "/etc"}):
        host = strict_site.local(**options)
        verdict = strict.judge({"Image": "i", "HostConfig": host})
        assert verdict.rule in {"strict-volumes", "host-path"}
        made = strict.judge({"Name": "v", "DriverOpts": options}, "/v1.41/volumes/create")
        assert made.rule in {"strict-volumes", "host-path"}


@pytest.mark.parametrize(("source", "rule"), [("-", "nothing-to-judge"), ("http://127.0.0.1:1/x", "strict-fields")])
def test_an_import_of_an_address_is_fetched_as_the_host(strict, source, rule):
    strict.rules = parse_rules(RULES.replace('"commit"', '"import"'))
    assert strict.judge(b"", f"/v1.41/images/create?fromSrc={source}&repo=x").rule == rule


@pytest.mark.parametrize(
    ("text", "mode"),
    [('mode = "strict"\n[strict', "strict"), ('mode = "strict"\nx = 1', "strict"), ("x = 1", "enforce")],
)
def test_a_broken_file_that_means_to_be_strict_does_not_begin_with_guard(tmp_path, text, mode):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    file = RulesFile(path)
    assert (file.rules().mode, file.error is None) == (mode, False)
    path.write_text('mode = "strict"\n[strict]\npaths = ["/srv"]')
    assert file.rules().strict.paths == ("/srv",)
    path.write_text(text + "broken")
    assert file.rules().strict.paths == ("/srv",)


@pytest.mark.parametrize("bound", ['largest_limit = "4g"', 'total_quota = "4g"', "largest_priority = 0", "slurm"])
def test_classic_builds_of_users_with_bounds_are_refused_where_the_default_runtime_is_ours(strict, bound):
    """Their steps would have the limit that the Dockerfile names."""
    listed = strict_site.RULES.replace("calls = [", 'calls = ["build", "buildkit", ', 1)
    bounds = 'require = "slurm"\n' + listed if bound == "slurm" else f'{listed}\n[users."*"]\n{bound}\n'
    strict.rules = parse_rules(bounds)
    for uri, rule in {
        "/build?t=x": "build-gpu",
        "/build?t=x&version=1": "build-gpu",
        "/build?t=x&version=2": "nothing-to-judge",
        "/session": "nothing-to-judge",
    }.items():
        assert strict.judge(b"", uri).rule == rule
    strict.engine.runtime = "runc"
    assert strict.judge(b"", "/build?t=x").rule == "nothing-to-judge"


@pytest.mark.parametrize("text", ["[[[[1]]]]", "[{}]", '{"a": 1}', "1"])
def test_a_body_that_takes_long_to_read_is_refused_unread(strict, text):
    """A megabyte of small lists took half a second, for which all others waited."""
    for count, rule in ((1_000, "strict-fields"), (70_000, "too-many")):
        body = f'{{"Image": "i", "HostConfig": {{"Odd": [{",".join([text] * count)}]}}}}'
        assert strict.judge(body.encode()).rule == rule
