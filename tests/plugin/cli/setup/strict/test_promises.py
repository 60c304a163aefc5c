"""What `convgpu authz status` says of strict rules that cannot keep their promise."""

import os
from types import SimpleNamespace

import pytest

from convgpu.cli.setup.strict.promises import (
    accepted_removals,
    endless_servers,
    open_entries,
    open_nodes,
    setgid_paths,
    shared_ids,
    unfit_engine,
    unjudged_starts,
)

REMAP = {"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}


@pytest.mark.parametrize(
    ("ids", "info", "warned"),
    [
        ([], {"SecurityOptions": ["name=cgroupns"]}, []),
        (["host"], {}, ["root of a container is root of the host here"]),
        ([], REMAP, ['no container starts: take "userns-remap" out']),
        (["shared"], REMAP, ["containers share user IDs by userns-remap"]),
        (["shared"], {"SecurityOptions": None}, []),
    ],
)
def test_containers_without_ids_of_their_own_are_warned_of(ids, info, warned):
    found = list(shared_ids(ids, info))
    assert [line.startswith(begin) for line, begin in zip(found, warned, strict=True)] == [True] * len(warned)


@pytest.mark.parametrize(
    ("rules", "named", "problem"),
    [
        ('mode = "strict"', True, []),
        ('mode = "enforce"', True, ["the runtime convgpu judges no start: "]),
        (None, True, ["the runtime convgpu judges no start: "]),
        ('mode = "strict"', False, ["no container starts: the Engine has no runtime convgpu"]),
    ],
)
def test_a_runtime_that_does_not_read_the_rules_is_a_problem(tmp_path, rules, named, problem):
    file = tmp_path / "rules.toml"
    if rules is not None:
        file.write_text(rules)
    words = ["--convgpu-directory=/x", "--convgpu-rules=/nowhere", f"--convgpu-rules={file}"]
    info = {
        "Runtimes": {"runc": {"path": "runc"}} | ({"convgpu": {"path": "x", "runtimeArgs": words}} if named else {})
    }
    found = list(unjudged_starts(info))
    assert [line.startswith(begin) for line, begin in zip(found, problem, strict=True)] == [True] * len(problem)


@pytest.mark.parametrize(
    ("calls", "fields", "named"),
    [
        ([], ["build remote"], []),
        (["load", "tag"], [], []),
        (["commit"], [], ["calls = ['commit']"]),
        (["cp"], [], ['calls = ["cp"]']),
        (["commit", "build"], ["volume copy"], ['fields = ["volume copy"]', "calls = ['build', 'commit']"]),
    ],
)
def test_entries_that_open_files_of_the_host_are_warned_of(calls, fields, named):
    assert [line.partition(" lets ")[0] for line in open_entries(calls, fields)] == named


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ({"GoVersion": "go1.19.8"}, True),
        ({"GoVersion": "go1.22.3"}, True),
        ({"GoVersion": "go1.22"}, True),
        ({"GoVersion": "go1.22.4"}, False),
        ({"GoVersion": "go1.23 X:strictfipsruntime"}, False),
        ({"GoVersion": "devel go1.27-abc"}, False),
        ({}, True),
    ],
)
def test_an_engine_of_an_old_go_is_a_problem_until_the_rules_accept_it(version, is_old):
    """It follows links where it removes folders."""
    problem, warning = unfit_engine([], version), accepted_removals(["removal"], version)
    assert [line.startswith("no container starts: the Engine was built with") for line in problem] == [True] * is_old
    assert [line.startswith("the Engine was built with") for line in warning] == [True] * is_old
    assert [*unfit_engine(["removal"], version), *accepted_removals([], version)] == []


def test_a_writable_path_that_is_not_mounted_nosuid_is_a_problem(monkeypatch):
    flags = {"/plain": 0, "/plain-too": 0, "/walled": os.ST_NOSUID | os.ST_NODEV}

    def statvfs(path):
        if path not in flags:
            raise FileNotFoundError(path)
        return SimpleNamespace(f_flag=flags[path])

    monkeypatch.setattr(os, "statvfs", statvfs)
    [problem] = setgid_paths([], ["/plain", "/walled", "/plain-too:ro", "/not/there"])
    assert problem.startswith("no container that writes /plain starts")
    assert list(setgid_paths(["setgid"], ["/plain"])) == []


@pytest.mark.parametrize(
    ("modes", "accepted", "warned"),
    [
        ({"nvidia0": 0o660, "nvidia1": 0o666, "nvidiactl": 0o666, "nvidia-uvm": 0o666}, [], True),
        ({"nvidia0": 0o666, "nvidiactl": 0o666}, ["host-gpus=alice"], True),
        ({"nvidia0": 0o666, "nvidiactl": 0o666}, ["host-gpus"], False),
        ({"nvidia0": 0o666, "nvidiactl": 0o660}, [], False),
        ({"nvidia0": 0o664, "nvidiactl": 0o666, "nvidia-uvm": 0o666}, [], False),
        ({}, [], False),
    ],
)
def test_nodes_that_everybody_may_open_are_warned_of(tmp_path, modes, accepted, warned):
    for name, mode in modes.items():
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    assert [line[:23] for line in open_nodes(accepted, tmp_path)] == ["everybody with an accou"] * warned


@pytest.mark.parametrize(
    ("mode", "timeout", "warned"),
    [(0o666, "0\n", 1), (0o666, None, 1), (0o666, "60\n", 0), (0o660, "0\n", 0), (None, "0\n", 0), (0o666, "odd", 0)],
)
def test_who_may_serve_files_and_never_answer(tmp_path, mode, timeout, warned):
    """What the audit ended stayed in the kernel with its memory until root aborted the server's connection."""
    node, limit = tmp_path / "fuse", tmp_path / "timeout"
    if mode is not None:
        node.touch()
        node.chmod(mode)
    if timeout is not None:
        limit.write_text(timeout)
    assert [line[:23] for line in endless_servers(node, limit)] == ["everybody with an accou"] * warned
