"""The ledger as everybody outside of the core sees it: copies that never change."""

from collections.abc import Mapping
from dataclasses import dataclass

from convgpu.core.memory.account import AccountView
from convgpu.core.memory.ledger import Ledger


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device, in bytes.

    Attributes:
        capacity: what ConvGPU may hand out.
        usable: what can be granted at all: the capacity, less what is charged to containers.
        free: usable and not granted; negative while the device is overcommitted.
        deficit: the safety deficit, what facts took and without which not every container could end.
        nominal_deficit: the same if everything that facts took from the device were back.
    """

    capacity: int
    usable: int
    free: int
    deficit: int
    nominal_deficit: int


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """All accounts, by container and device, and all devices, at one moment."""

    accounts: Mapping[str, Mapping[str, AccountView]]
    devices: Mapping[str, DeviceView]

    def on(self, device: str) -> Mapping[str, AccountView]:
        """Return the accounts of one device, by container."""
        return {name: accounts[device] for name, accounts in self.accounts.items() if device in accounts}


def view_device(ledger: Ledger, device: str) -> DeviceView:
    """Return the figures of a device as they are now."""
    return DeviceView(
        ledger.capacity[device],
        ledger.usable[device],
        ledger.free[device],
        ledger.deficit[device],
        ledger.nominal_deficit[device],
    )


def take_snapshot(ledger: Ledger) -> LedgerSnapshot:
    """Return all accounts and devices as they are now; costs as much as there are accounts."""
    return LedgerSnapshot(
        {name: {device: a.view() for device, a in accounts.items()} for name, accounts in ledger.accounts.items()},
        {device: view_device(ledger, device) for device in ledger.capacity},
    )
