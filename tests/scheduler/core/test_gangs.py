"""A further container of a gang: refused with what would do."""

import pytest

from convgpu.core.gangs import Member, check_gang
from convgpu.core.volume_options import DeviceCapacity, OptionError, Terms, parse_options

GIB = 1 << 30
DEVICES = [DeviceCapacity("GPU-a", 0, 24 * GIB, 24 * GIB), DeviceCapacity("GPU-b", 1, 24 * GIB, 24 * GIB)]


def member(name: str, memory: str, gang: str = "train", **options: str) -> Member:
    terms = parse_options({"memory": memory, "gang": gang, **options}, DEVICES)
    return Member(name, terms, terms.limits)


def test_a_gang_that_fits_is_accepted_on_each_device_by_itself() -> None:
    others = [member("a", "14g", gpus="0")]
    check_gang(member("b", "10g", gpus="0"), others, DEVICES)
    check_gang(member("c", "24g", gpus="1"), others, DEVICES)
    check_gang(member("a", "24g", gpus="0"), others, DEVICES)  # other limits of the same container


def test_limits_that_cannot_be_had_together_are_refused_with_the_limit_that_fits() -> None:
    with pytest.raises(OptionError) as refused:
        check_gang(member("b", "12g", gpus="0"), [member("a", "14g", gpus="all")], DEVICES)
    assert str(refused.value) == (
        "gang=train: its limits on GPU-a would add up to 26GiB, and that has 24GiB to hand out; the largest limit that "
        "fits is memory=10240m, or choose another GPU with the option gpus"
    )


def test_a_gang_without_room_for_any_limit_names_another_way() -> None:
    with pytest.raises(OptionError, match="choose another GPU with the option gpus, or lower the limits of the others"):
        check_gang(member("b", "1g", gpus="0"), [member("a", "24g", gpus="all")], DEVICES)


def test_a_gang_whose_gpus_are_chosen_is_refused_when_no_choice_would_do() -> None:
    others = [member("a", "14g"), member("b", "14g")]
    check_gang(member("c", "10g"), others, DEVICES)
    with pytest.raises(OptionError) as refused:
        check_gang(member("c", "11g"), others, DEVICES)
    assert str(refused.value) == (
        "gang=train: its 3 containers cannot have their limits at the same time on the 2 GPUs of this host; the "
        "largest limit that fits is memory=10240m, or lower the limits of the others"
    )
    named = [member("a", "24g", gpus="0"), member("b", "24g")]
    with pytest.raises(OptionError, match="on the 2 GPUs of this host; lower the limits of the others"):
        check_gang(member("c", "1g"), named, DEVICES)
    check_gang(member("b", "10g"), named, DEVICES)  # another limit of the same container


def test_many_of_a_gang_are_judged_at_once() -> None:
    devices = [DeviceCapacity(f"GPU-{number}", number, 16 * GIB, 16 * GIB) for number in range(8)]

    def of(name: str, memory: str) -> Member:
        terms = parse_options({"memory": memory, "gang": "train"}, devices)
        return Member(name, terms, terms.limits)

    eight = [of(str(number), "10g") for number in range(8)]
    check_gang(of("8", "6g"), eight, devices)
    with pytest.raises(OptionError, match="the largest limit that fits is memory=6144m"):
        check_gang(of("8", "10g"), eight, devices)


def test_another_size_and_one_too_many_are_refused() -> None:
    with pytest.raises(OptionError, match="the others of this gang say gang=train:2; write the same"):
        check_gang(member("b", "1g"), [member("a", "1g", "train:2")], DEVICES)
    two = [member("a", "1g", "train:2"), member("b", "1g", "train:2")]
    with pytest.raises(OptionError, match=r"has its 2 containers already \(a, b\); remove one that has ended"):
        check_gang(member("c", "1g", "train:2"), two, DEVICES)


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({}, (False, "", 0)),
        ({"admit": "part"}, (False, "", 0)),
        ({"admit": "whole"}, (True, "", 0)),
        ({"gang": "train"}, (True, "train", 0)),
        ({"gang": "train:4", "admit": "whole"}, (True, "train", 4)),
    ],
)
def test_options_of_admission(options: dict[str, str], whole: tuple[bool, str, int]) -> None:
    terms: Terms = parse_options(options, DEVICES)
    assert (terms.is_whole, terms.gang, terms.gang_size) == whole


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"admit": "all"}, "admit=all: give whole .* or part"),
        ({"admit": ""}, "admit=: give whole"),
        ({"admit": "part", "gang": "train"}, "admit=part: a gang starts whole; leave out admit, or gang"),
        *(({"gang": text}, "gang=train or gang=train:4") for text in ("", "a b", "train:", "train:1", "train:x", ":2")),
    ],
)
def test_bad_options_of_admission_are_refused_with_what_would_do(options: dict[str, str], hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        parse_options(options, DEVICES)
