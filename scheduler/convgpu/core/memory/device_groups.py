"""Which devices are connected: what changes on one of them matters for somebody on another."""


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
