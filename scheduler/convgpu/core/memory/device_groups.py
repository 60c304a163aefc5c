"""Where anything has changed, and which devices are connected: changes on one matter for somebody on another."""

from collections.abc import Iterable


class DeviceGroups:
    """Counts sets of devices, and finds those that are connected by them."""

    def __init__(self) -> None:
        self._counts: dict[frozenset[str], int] = {}
        self._connected: dict[str, frozenset[str]] = {}  # by device, as far as computed

    def add(self, devices: frozenset[str]) -> None:
        """Count a set of devices."""
        if len(devices) < 2:
            return
        if devices not in self._counts:
            self._counts[devices] = 0
            self._connected.clear()
        self._counts[devices] += 1

    def remove(self, devices: frozenset[str]) -> None:
        """Count a set of devices once less."""
        if len(devices) < 2:
            return
        self._counts[devices] -= 1
        if not self._counts[devices]:
            del self._counts[devices]
            self._connected.clear()

    def connected(self, device: str) -> frozenset[str]:
        """Return the devices that are connected with one, and itself."""
        found = self._connected.get(device)
        if found is None:
            found = frozenset([device])
            size = 0
            while size < len(found):
                size = len(found)
                found = found.union(*(devices for devices in self._counts if not devices.isdisjoint(found)))
            self._connected |= dict.fromkeys(found, found)
        return found


class Changes:
    """What has changed since all who wait were tried in vain.

    Attributes:
        devices: those on which anything has changed.
        latest: those of them on which anything has changed since one who waits was chosen last.
        releases: how often anything has changed that may let others be served: anything but a grant or a lease.
    """

    def __init__(self) -> None:
        self.devices: dict[str, None] = {}
        self.latest: dict[str, None] = {}
        self.releases = 0

    def take(self, device: str, size: int) -> None:
        """Record that so many bytes of a device were granted or leased; a negative size: returned."""
        self.devices[device] = self.latest[device] = None
        if size < 0:
            self.releases += 1

    def release(self, devices: Iterable[str]) -> None:
        """Record anything else on devices."""
        for device in devices:
            self.devices[device] = self.latest[device] = None
        self.releases += 1

    def clear(self) -> None:
        """Begin anew: all who wait were tried in vain."""
        self.devices.clear()
        self.latest.clear()
