"""A container whose memory can leave: what the page says of its card turn and of what cannot leave."""

import pytest
from daemon import GIB
from page_world import house as open_house

pytestmark = pytest.mark.browser


@pytest.fixture
def house(tmp_path):
    """Its process never says that its memory can leave, so all that it leases is fixed."""
    with open_house(tmp_path, "simulated:16GiB", "--host-memory=64MiB") as built:
        built.container("leaves", 4 * GIB, suspend="auto", fixed="3g")
        process = built.process("leaves")
        process.answer(process.allocate(2 * GIB))
        yield built


def test_the_page_of_an_elastic_container_says_what_is_fixed_and_what_moved(page) -> None:
    tab = page()
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 1")
    figures = tab.text(".figures")
    assert "Capacity" in figures
    assert "Moved" not in figures  # nothing was
    tab.evaluate("location.hash = '#container/leaves'")
    # The page may have been drawn with the snapshot before the allocation.
    tab.wait("document.querySelector('#container-facts').innerText.includes('4.0 GiB fixed')")
    facts = tab.text("#container-facts")
    assert "0 B on the host, 4.0 GiB fixed" in facts
    assert "stopped 0 times · 0 B went out, 0 B came back" in facts
