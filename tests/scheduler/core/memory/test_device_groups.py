"""Devices are connected as long as somebody is concerned by several of them."""

from convgpu.core.memory.device_groups import DeviceGroups


def test_sets_that_overlap_connect_all_their_devices() -> None:
    groups = DeviceGroups()
    groups.add(frozenset({"a", "b"}))
    groups.add(frozenset({"b", "c"}))
    groups.add(frozenset({"d"}))
    assert groups.connected("c") == {"a", "b", "c"}
    assert groups.connected("d") == {"d"}
    groups.add(frozenset({"d", "a"}))
    assert groups.connected("d") == {"a", "b", "c", "d"}


def test_the_last_of_equal_sets_connects() -> None:
    groups = DeviceGroups()
    for _ in range(2):
        groups.add(frozenset({"a", "b"}))
    groups.remove(frozenset({"a", "b"}))
    assert groups.connected("a") == {"a", "b"}
    groups.remove(frozenset({"a", "b"}))
    assert groups.connected("a") == {"a"}
