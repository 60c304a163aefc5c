"""Which container each eviction policy moves first."""

import pytest

from convgpu.policies.eviction import EVICTION_POLICIES, Victim

#                   name, order, size, since
VICTIMS = [
    Victim("oldest", 1, 8, 30.0),
    Victim("small", 2, 2, 10.0),
    Victim("large", 3, 16, 20.0),
    Victim("youngest", 4, 8, 40.0),
]


@pytest.mark.parametrize(
    ("policy", "lacking", "expected"),
    [
        ("youngest", 4, ["youngest", "large", "small", "oldest"]),
        ("longest", 4, ["small", "large", "oldest", "youngest"]),
        ("smallest", 4, ["small", "youngest", "oldest", "large"]),
        ("fewest", 4, ["oldest", "youngest", "large", "small"]),
        ("fewest", 20, ["large", "oldest", "youngest", "small"]),
    ],
)
def test_order(policy: str, lacking: int, expected: list[str]) -> None:
    assert [victim.container for victim in EVICTION_POLICIES[policy].rank(VICTIMS, lacking)] == expected


def test_every_policy_has_cases() -> None:
    assert set(EVICTION_POLICIES) == {"youngest", "longest", "smallest", "fewest"}
    assert all(policy.name == name for name, policy in EVICTION_POLICIES.items())
