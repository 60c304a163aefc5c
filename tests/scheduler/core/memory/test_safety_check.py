"""Each answer about a grant is that of the Banker's algorithm from scratch, whatever was granted or returned before."""

import random

import pytest
from built import build_hook

from convgpu.core.memory import bankers
from convgpu.core.memory.bankers import Claim
from convgpu.core.memory.claim_table import MakeClaimTable, PlainClaimTable
from convgpu.core.memory.ledger import Ledger
from convgpu.daemon.system.native_claims import SafetyLibrary


def claims_of(ledger: Ledger) -> list[Claim]:
    claims = []
    for accounts in ledger.accounts.values():
        granted = tuple((device, account.grant) for device, account in accounts.items() if account.grant)
        needs = {device: min(a.limit, ledger.usable[device]) - a.grant for device, a in accounts.items()}
        if granted:
            claims.append(Claim(granted, tuple((device, need) for device, need in needs.items() if need > 0)))
    return claims


def is_safe(ledger: Ledger) -> bool:
    return bankers.is_safe(ledger.free, claims_of(ledger))


def is_safe_after(ledger: Ledger, container: str, device: str, size: int) -> bool:
    """As it was asked before there was anything to remember: grant it, look, and take it back."""
    account = ledger.accounts[container][device]
    if size > ledger.free[device] or account.grant + size > account.limit:
        return False
    fresh = Ledger(ledger.capacity)
    for name, accounts in ledger.accounts.items():
        fresh.open(name, {on: each.limit for on, each in accounts.items()})
        for on, each in accounts.items():
            fresh.grant(name, on, each.grant)
    fresh.grant(container, device, size)
    return is_safe(fresh)


@pytest.fixture(scope="module", params=["plain", "native"])
def make_table(request: pytest.FixtureRequest) -> MakeClaimTable:
    if request.param == "plain":
        return PlainClaimTable
    return SafetyLibrary(build_hook() / "libconvgpu-safety.so").make_table


@pytest.mark.parametrize("seed", range(60))
def test_answers_equal_those_from_scratch(seed: int, make_table: MakeClaimTable) -> None:
    draw = random.Random(seed)  # noqa: S311 - a history, not a secret
    capacity = {f"g{number}": draw.randint(10, 60) for number in range(draw.choice([1, 2, 2, 3, 5]))}
    ledger = Ledger(capacity)
    for check in ledger.scenarios:
        check.use_tables(make_table)
    most = draw.randint(1, len(capacity))
    for number in range(draw.choice([4, 12, 30])):
        devices = draw.sample(sorted(capacity), draw.randint(1, most))
        ledger.open(f"c{number}", {device: draw.randint(1, capacity[device]) for device in devices})
    for _ in range(80):
        for _ in range(draw.randint(1, 6)):
            name = draw.choice(list(ledger.accounts))
            device = draw.choice(list(ledger.accounts[name]))
            size = draw.randint(1, max(1, capacity[device] // draw.choice([1, 4, 12])))
            answer = ledger.is_safe_to_grant(name, device, size)
            assert answer == is_safe_after(ledger, name, device, size)
            if answer:
                ledger.grant(name, device, size)
        holders = sorted(ledger.holders)
        if holders and draw.random() < 0.7:
            name = draw.choice(holders)
            for device, account in ledger.accounts[name].items():
                ledger.grant(name, device, -draw.choice([0, account.grant // 2, account.grant]))
        assert is_safe(ledger)
    ledger.check_invariants()
