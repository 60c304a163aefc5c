"""Words are quoted as `shlex` does it."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from convgpu.protocol.quick.shell import join


@given(st.lists(st.text(alphabet=st.one_of(st.characters(max_codepoint=127), st.sampled_from("éß字")), max_size=5)))
def test_a_line_is_that_of_shlex(words: list[str]) -> None:
    assert join(words) == shlex.join(words)
