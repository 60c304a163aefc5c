import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgpu.protocol.sizes import FORMS, format_size, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512b", 512),
        ("3k", 3072),
        ("512m", 512 << 20),
        ("2g", 2 << 30),
        ("2GiB", 2 << 30),
        ("1TiB", 1 << 40),
        (" 7MiB ", 7 << 20),
        ("2G", 2 << 30),
        ("2gb", 2 << 30),
        ("20GB", 20 << 30),
        ("1.5g", 3 << 29),
        ("2 G", 2 << 30),
        ("2Gib", 2 << 30),
        ("0.3k", 307),
        ("1p", 1 << 50),
    ],
)
def test_known_forms(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "-1", "g", "2  g", "2 x", "0x10", "2ig", "٣g", "1e9", "1" * 16, "1.5.2g", ".5g", "2.g", "50%"]
)
def test_other_forms_are_an_error_that_names_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="not a size") as caught:
        parse_size(text)
    assert FORMS in str(caught.value)


@pytest.mark.parametrize("text", ["0", "0g", "000MiB", "0.0g", "0.1b"])
def test_no_memory_at_all_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="greater than zero"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1536, "1.5KiB"),
        (2 << 30, "2GiB"),
        (526 << 20, "526MiB"),
        (1 << 40, "1TiB"),
    ],
)
def test_format(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(1, 1023), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_whole_units_survive_the_way_there_and_back(number: int, unit: str) -> None:
    assert format_size(parse_size(f"{number}{unit}")) == f"{number}{unit}"


@pytest.mark.parametrize(("text", "percents"), [("50%", 50), (" 1% ", 1), ("100%", 100), ("2g", None), ("", None)])
def test_shares(text: str, percents: int | None) -> None:
    assert parse_share(text) == percents


@pytest.mark.parametrize("text", ["0%", "101%", "1.5%", "-1%", "%", "50%%", "50% of it", "²%", "9" * 5000 + "%"])
def test_what_is_no_share_of_a_device_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="from 1% to 100%"):
        parse_share(text)


GRAMMAR = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)


@settings(max_examples=50)
@given(st.text("0123456789.kmgtpibKGB \u212a٣x", max_size=20) | st.from_regex(GRAMMAR, fullmatch=True))
def test_the_code_reads_dockers_grammar(text: str) -> None:
    """The pattern says the same as the code, which does without patterns."""
    match = GRAMMAR.fullmatch(text.strip())
    if match is None:
        with pytest.raises(ValueError, match="not a size"):
            parse_size(text)
        return
    whole, _, part = match[1].partition(".")
    shift = " kmgtp".index(match[2].lower() or " ") * 10
    size = (int(whole + part) << shift) // 10 ** len(part)
    if size:
        assert parse_size(text) == size
    else:
        with pytest.raises(ValueError, match="greater than zero"):
            parse_size(text)
