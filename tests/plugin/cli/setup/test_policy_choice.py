"""`convgpu policy` and `convgpu placement` show what there is to choose from."""

import json

import pytest

from convgpu.cli.setup.policy_choice import print_choice
from convgpu.protocol.records import PolicyChoice

CHOICE = PolicyChoice(policy="spread", known=("best-fit", "spread"))


def test_a_star_stands_before_the_policy_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    print_choice(CHOICE, as_json=False)
    assert capsys.readouterr().out == "  best-fit\n* spread\n"


def test_the_same_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_choice(CHOICE, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"policy": "spread", "known": ["best-fit", "spread"]}
