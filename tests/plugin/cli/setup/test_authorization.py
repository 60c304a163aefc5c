"""What `convgpu authz status` warns of."""

import pytest

from convgpu.cli.setup.authorization import unremapped


@pytest.mark.parametrize(
    ("mode", "options", "warned"),
    [
        ("strict", ["name=seccomp,profile=default", "name=cgroupns"], True),
        ("strict", [], True),
        ("strict", ["name=seccomp", "name=userns"], False),
        ("enforce", [], False),
    ],
)
def test_strict_rules_without_user_namespaces_are_warned_of(mode, options, warned):
    assert ['"userns-remap"' in line for line in unremapped(mode, options)] == [True] * warned
