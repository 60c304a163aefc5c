"""What `convgpu authz status` warns of."""

import pytest

from convgpu.cli.setup.authorization import shared_ids

REMAP = ["name=seccomp,profile=default", "name=userns"]


@pytest.mark.parametrize(
    ("mode", "ids", "options", "warned"),
    [
        ("strict", [], ["name=seccomp,profile=default", "name=cgroupns"], []),
        ("strict", ["host"], [], ["root of a container is root of the host here"]),
        ("strict", [], REMAP, ['no container starts: take "userns-remap" out']),
        ("strict", ["shared"], REMAP, ["containers share user IDs by userns-remap"]),
        ("strict", ["shared"], [], []),
        ("enforce", ["host"], [], []),
    ],
)
def test_strict_rules_without_ids_of_each_container_are_warned_of(mode, ids, options, warned):
    found = list(shared_ids(mode, ids, options))
    assert [line.startswith(begin) for line, begin in zip(found, warned, strict=True)] == [True] * len(warned)
