"""Charts, the page of a container, users, and access: one house, which no test changes."""

import time

import pytest
from daemon import GIB, wait_until
from page_world import house as open_house

pytestmark = pytest.mark.browser

CONTRAST = r"""(() => {
  const probe = document.createElement('i');
  document.body.append(probe);
  const light = (name) => {
    probe.style.color = `var(${name})`;
    const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = ['--ground', '--card'].map((name) => [light('--control'), light(name)].sort((a, b) => b - a));
  probe.remove();
  return pairs.map(([a, b]) => (a + 0.05) / (b + 0.05));
})()"""
CELLS = """[...document.querySelectorAll('#container-table tbody td')]
  .filter((cell) => cell.innerText && cell.checkVisibility()).length"""
NAMED = "(table) => table.ariaLabel || table.getAttribute('aria-labelledby')"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """`train` held 4 of 32 GiB and is gone; `holder` holds 12; `late` holds 2 and waits for 20."""
    with open_house(tmp_path_factory.mktemp("h"), "simulated:32GiB") as built:
        admin = built.daemon.admin
        train = built.holder("train", 4 * GIB)
        wait_until(lambda: _has_sample(built, 4 * GIB), "a sample of train")
        train.end()
        admin.request("unmount", name="train", id="1")
        admin.request("remove", name="train")
        built.holder("holder", 12 * GIB)
        built.container("late", 28 * GIB)
        late = built.process("late", "python3")
        late.answer(late.allocate(2 * GIB))
        late.allocate(20 * GIB)
        row = {"image": "cuda", "state": "running"}
        listed = [
            {"id": f"{number:064}", "name": f"c-{name}", "volumes": [name], "labels": {"convgpu.user": user}, **row}
            for number, (name, user) in enumerate((("holder", "ana"), ("late", "ben")))
        ]
        admin.request("listed", asked=time.time(), containers=listed, volumes=["holder", "late"])
        yield built


def _has_sample(house, usage):
    samples = house.daemon.admin.request("usage")["samples"]
    return any(share[2] == usage for sample in samples for one in sample["devices"].values() for share in one["shares"])


@pytest.fixture
def tab(page):
    """The page, with both containers and a sample."""
    opened = page()
    opened.wait("document.querySelectorAll('#container-table tbody tr').length === 2")
    opened.wait("document.querySelector('.past')?.getAttribute('aria-valuetext').includes('c-holder')")
    return opened


def test_a_chart_tells_its_values_by_keyboard_also_of_before_the_page_was_opened(tab):
    assert tab.text(".values") == ""
    tab.evaluate("document.querySelector('.past').focus()")
    tab.press("End")
    tab.wait("document.querySelector('.values').checkVisibility()")
    shown = tab.text(".values")
    assert "14.0 GiB used, 14.0 GiB granted of 32.0 GiB" in shown
    assert "c-holder 12.0 GiB of 12.0 GiB" in shown
    assert "GPU 0 %" in shown
    for _ in range(200):
        if "train 4.0 GiB of 4.0 GiB" in tab.text(".values"):
            break
        tab.press("ArrowLeft")
    assert "train 4.0 GiB of 4.0 GiB" in tab.text(".values")
    tab.press("Home")
    tab.wait("document.querySelector('.values').innerText === 'no sample'")
    assert tab.evaluate("document.querySelector('.past').getAttribute('aria-valuenow')") == "-599"
    tab.press("Escape")
    assert not tab.evaluate("document.querySelector('.values').checkVisibility()")


def test_a_chart_tells_its_values_under_the_pointer(tab):
    box = tab.evaluate(
        "(({x, y, width}) => [x + width - 1, y + 20])(document.querySelector('.past').getBoundingClientRect())"
    )
    tab.move_pointer(*box)
    tab.wait("document.querySelector('.values').innerText.includes('c-holder 12.0 GiB')")
    tab.move_pointer(2, 2)
    tab.wait("!document.querySelector('.values').checkVisibility()")


def test_a_container_that_is_gone_keeps_its_name_its_chart_and_its_history(tab):
    tab.evaluate("location.hash = '#container/train'")
    tab.wait("document.querySelector('#container-plots canvas') !== null")
    assert "is gone" in tab.text("#container-gone")
    tab.wait("document.querySelectorAll('#history tbody tr').length > 3")
    assert "removed" in tab.text("#history")


def test_the_page_of_a_container_says_why_it_waits_and_what_it_has(tab, picture):
    tab.evaluate("location.hash = '#container/late'")
    tab.wait("document.querySelector('#container-plots canvas') !== null")
    assert tab.text("#container-title") == "c-late"
    waits = tab.text("#container-waits")
    assert "for 20.0 GiB on GPU 0: not enough is free (2.0 GiB missing)" in waits
    assert "18.0 GiB are free · held by c-holder" in waits
    facts = tab.text("#container-facts")
    assert "uses 2.0 GiB, granted 2.0 GiB, limit 28.0 GiB" in facts
    assert "ben" in facts
    tab.wait("document.querySelectorAll('#history tbody tr[data-kind=paused]').length === 1")
    picture(tab, "container", whole=True)
    tab.evaluate("document.querySelector('#ask-allocations').click()")
    tab.wait("document.querySelector('#allocations-note').innerText.includes('1 of its processes did not answer')")


def test_a_longer_span_is_the_schedulers(tab):
    tab.evaluate("const s = document.querySelector('#span'); s.value = '144'; s.dispatchEvent(new Event('change'))")
    tab.wait("document.querySelector('#span-note').innerText")
    assert "scheduler has" in tab.text("#span-note")
    assert "-24 h" in tab.text(".axis")


def test_users_and_labels_are_shown_and_filtered_by(tab):
    assert "ana" in tab.text("#container-table tbody tr")
    tab.evaluate(
        "const f = document.querySelector('#filter'); f.value = 'user=ben'; f.dispatchEvent(new Event('input'))"
    )
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 1")
    assert "c-late" in tab.text("#container-table")


def test_edges_of_controls_stand_out_three_to_one(tab):
    for theme in ("light", "dark"):
        tab.theme(theme)
        assert min(tab.evaluate(CONTRAST)) >= 3, theme


def test_every_table_has_a_name_and_narrow_screens_lose_nothing(tab, picture):
    assert tab.evaluate(f"[...document.querySelectorAll('table')].every({NAMED})")
    wide = tab.evaluate(CELLS)
    for width in (1400, 800, 390):
        tab.resize(width, 900)
        picture(tab, f"{width}", whole=True)
        assert tab.evaluate(CELLS) == wide
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_a_browser_that_is_too_old_is_told(house, browser):
    """Chromium without what the page is written in."""
    tab = browser.page("about:blank")
    tab.before_all("CSS.supports = () => false")
    tab.go(house.url)
    tab.wait("document.querySelector('#old')?.checkVisibility()")
    assert "too old for this page" in tab.text("#old")
    tab.close()
