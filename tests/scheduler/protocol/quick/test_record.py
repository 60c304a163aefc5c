"""Records behave as frozen dataclasses."""

import pytest

from convgpu.protocol.quick.record import Record


class Point(Record):
    x: int
    y: int = 0


class Place(Record):
    x: int
    y: int = 0


def test_fields_are_given_in_order_or_by_name_and_have_defaults() -> None:
    assert [(each.x, each.y) for each in (Point(1), Point(1, 2), Point(y=2, x=1))] == [(1, 0), (1, 2), (1, 2)]
    assert repr(Point(1)) == "Point(x=1, y=0)"


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1})])
def test_other_fields_are_an_error(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point has the fields x, y"):
        Point(*values, **named)


def test_they_compare_by_value_and_do_not_change() -> None:
    assert Point(1) == Point(1, 0) != Point(1, 1)
    assert Point(1) != Place(1)
    assert {Point(1), Point(1, 0)} == {Point(1)}
    with pytest.raises(AttributeError, match="does not change: x"):
        Point(1).x = 2
    assert Point(1, 2).changed(x=3) == Point(3, 2)
