"""How much host memory is taken, for which devices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgpu.daemon.residency.host_pool import IN_FLIGHT, HostPool, plan_pool

GIB = 1 << 30
SIZES = st.dictionaries(st.sampled_from("abcd"), st.integers(GIB, 200 * GIB), min_size=1)


@pytest.mark.parametrize(("threshold", "taken"), [(1.0, GIB + IN_FLIGHT + (2 << 20)), (1.5, 12 * GIB + IN_FLIGHT)])
def test_what_is_taken_is_what_may_leave_unless_more_is_promised(threshold: float, taken: int) -> None:
    pool = plan_pool(None, 64 * GIB, {"a": 12 * GIB}, threshold)
    needed = pool.size if pool.is_promised else pool.needed({"a": GIB})
    assert (pool.size, needed) == (12 * GIB + IN_FLIGHT, taken)


@given(SIZES, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 300 * GIB)))
def test_each_device_has_room_for_the_limits_on_it(capacity: dict[str, int], limits: dict[str, int]) -> None:
    pool = HostPool(1 << 50, capacity, 1.0)
    needed = pool.needed(limits)
    assert needed % (2 << 20) == 0
    for device in capacity:
        share, slack = pool.share(device, needed)
        assert share == slack  # nothing of it is promised to anybody
        assert share >= limits.get(device, 0) + IN_FLIGHT


def test_no_more_is_taken_than_the_setting_says() -> None:
    assert HostPool(GIB, {"a": 16 * GIB}, 1.0).needed({"a": 8 * GIB}) == GIB
