"""Checks that what the ledger records of grants is the sum of its parts."""

from collections.abc import Iterable, Mapping

from convgpu.core.errors import InvariantBrokenError
from convgpu.core.memory.account import Account


def check_sums(
    accounts: Mapping[str, Mapping[str, Account]],
    recorded_holders: Iterable[str],
    capacity: Mapping[str, int],
    recorded_free: Mapping[str, int],
) -> None:
    """Recompute holders and free memory from the accounts.

    Raises:
        InvariantBrokenError: invariant 1 does not hold, or a figure is not the sum of its parts.
    """
    holders = {name for name, of_name in accounts.items() if any(account.grant for account in of_name.values())}
    if holders != set(recorded_holders):
        raise InvariantBrokenError(f"holders: {holders}, recorded are {recorded_holders}")
    free = dict(capacity)
    for container, of_container in accounts.items():
        for device, account in of_container.items():
            free[device] -= account.grant + account.charged
            account.check(f"{container} on {device}", is_overcommitted=recorded_free[device] < 0)
    if free != recorded_free:
        raise InvariantBrokenError(f"grants and capacity: {free} free, recorded are {recorded_free}")
