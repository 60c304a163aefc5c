"""Limits that are a share of a device."""

import pytest

from convgpu.core.volume_options import DeviceCapacity, OptionError, parse_limits, parse_sizes

GIB = 1 << 30
BIG = DeviceCapacity("GPU-a", 0, 40 * GIB, 40 * GIB)
BUSY = DeviceCapacity("GPU-b", 1, 4 * GIB, 16 * GIB)  # the rest is held by programs outside
LOST = DeviceCapacity("GPU-c", 2, 0, 0, "it does not answer")


def test_a_share_is_of_what_the_device_has_without_external_memory():
    assert parse_sizes("50%", [BIG, BUSY]) == {"GPU-a": 20 * GIB, "GPU-b": 8 * GIB}
    assert parse_sizes("GPU-a:25%, GPU-b:3g", [BIG, BUSY]) == {"GPU-a": 10 * GIB, "GPU-b": 3 * GIB}
    assert parse_sizes("33%", [BIG]) == {"GPU-a": 13516 << 20}  # whole MiB
    assert parse_limits("100%", [BIG]) == {"GPU-a": 40 * GIB}
    assert parse_limits("50%", [BIG, LOST]) == {"GPU-a": 20 * GIB}


def test_what_cannot_be_had_is_refused_as_a_size_is():
    with pytest.raises(OptionError, match="the largest limit that fits is memory=4096m"):
        parse_limits("50%", [BUSY])
    with pytest.raises(OptionError, match="50% of GPU-c is nothing: it does not answer"):
        parse_limits("50%", [LOST])
    with pytest.raises(OptionError, match="50% of GPU-c is nothing: it does not answer"):
        parse_limits("GPU-a:50%,GPU-c:50%", [BIG, LOST])
    with pytest.raises(OptionError, match="is not a share"):
        parse_limits("150%", [BIG])
