"""Spans of time: the grammar as a pattern says the same as the code, which does without patterns."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convgpu.protocol.durations import parse_duration

GRAMMAR = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?", re.ASCII)
SECONDS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@settings(max_examples=50)
@given(st.text("0123456789mshd. ٣", max_size=12) | st.from_regex(GRAMMAR, fullmatch=True))
def test_the_code_reads_the_grammar(text: str) -> None:
    match = GRAMMAR.fullmatch(text.strip())
    if match:
        assert parse_duration(text) == int(match[1]) * SECONDS[match[2]]
    else:
        with pytest.raises(ValueError, match="is not a duration: write it as 500ms, 30s, 5m, 2h or 1d"):
            parse_duration(text)
