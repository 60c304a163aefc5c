import os
from pathlib import Path

import pytest
from chromium import Browser, Page, running_browser
from page_world import house as open_house


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with running_browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def house(tmp_path):
    with open_house(tmp_path) as built:
        yield built


@pytest.fixture
def page(browser: Browser, house):
    """Opens tabs; each of them must have had nothing to complain about and must have asked nobody else."""
    opened: list[Page] = []

    def open_page(**settings) -> Page:
        opened.append(browser.page(house.url, **settings))
        opened[-1].wait("document.querySelector('#status')?.dataset.state === 'live'")
        return opened[-1]

    yield open_page
    for tab in opened:
        assert tab.complaints() == []
        assert [url for url in tab.requested() if not url.startswith((house.url, "data:"))] == []
        tab.close()
    browser.events.clear()


@pytest.fixture
def picture():
    """Where pictures for people go: build/screenshots; only with CONVGPU_SCREENSHOTS in the environment."""
    directory = Path(__file__).parents[2] / "build/screenshots"

    def take(tab: Page, name: str, *, whole: bool = False) -> None:
        if os.environ.get("CONVGPU_SCREENSHOTS"):
            directory.mkdir(parents=True, exist_ok=True)
            tab.screenshot(directory / f"{name}.png", whole=whole)

    return take
