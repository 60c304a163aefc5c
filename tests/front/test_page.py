"""The page in a real browser, with the real scheduler and the plugin's server behind it."""

import functools
import socket
import time

import pytest
from daemon import GIB, wait_until
from page_world import MIB

pytestmark = pytest.mark.browser

WAITING = "document.querySelectorAll('#queue tbody tr').length"
LIVE = "document.querySelector('#status')?.dataset.state === 'live'"
HOSTILE = {
    "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
    "\u202egnp.exe\x1b[2J\n\0": r"\u{202e}gnp.exe\u{1b}[2J\u{a}",
}


def test_a_pause_shows_within_two_seconds_and_its_end(house, page, picture):
    holder = house.holder("holder", 12 * GIB)
    house.container("late", 8 * GIB)
    late = house.process("late")
    tab = page()
    picture(tab, "light")
    assert tab.evaluate(WAITING) == 0
    assert tab.text("#no-queue") == "Nobody waits."

    shown, gone = [seconds_of(tab, f"{WAITING} === 1", lambda: late.allocate(6 * GIB))], []
    row = tab.text("#queue tbody tr")
    assert "late" in row
    assert "6.0 GiB" in row
    assert "not enough is free" in row
    assert "1 wait" in tab.text("#summary")
    tab.wait("document.querySelector('#decisions tr[data-kind=paused]')")
    picture(tab, "waiting", whole=True)

    gone.append(seconds_of(tab, f"{WAITING} === 0", holder.end))
    tab.wait("document.querySelector('#decisions tr[data-kind=granted]')")
    while (min(shown) >= 2 or min(gone) >= 2) and len(shown) < 5:  # a busy machine holds up one or the other
        holder = house.process("holder")
        shown.append(seconds_of(tab, f"{WAITING} === 1", functools.partial(holder.allocate, 12 * GIB)))
        gone.append(seconds_of(tab, f"{WAITING} === 0", holder.end))
    assert (min(shown) < 2, min(gone) < 2) == (True, True), (shown, gone)


def seconds_of(tab, seen, act):
    """Return the seconds from an act until the page shows it."""
    begun = time.monotonic()
    act()
    tab.wait(seen)
    return time.monotonic() - begun


def test_an_empty_house(page, picture):
    tab = page(dark=True)
    assert "No container has a ConvGPU volume." in tab.text("#no-containers")
    assert tab.text("#no-decisions") == "Nothing was decided yet."
    assert "16.0 GiB" in tab.text(".device")
    picture(tab, "empty")


def test_names_are_shown_and_never_obeyed(house, page):
    house.container("c" * 255)
    for program in HOSTILE:
        house.process("c" * 255, program).allocate(GIB)
    tab = page(width=500)
    tab.wait("document.querySelector('#container-table tbody tr')")
    tab.evaluate("document.querySelector('#all-decisions').click()")
    tab.wait("document.querySelector('#decisions tr[data-kind=accepted]')")
    tab.evaluate("document.querySelector('#container-table tbody a').click()")
    tab.wait("document.querySelectorAll('#container-processes li').length === 2")
    said = tab.text("#container-processes")
    assert [shown for shown in HOSTILE.values() if shown not in said] == []
    assert tab.evaluate("document.title") == f"{'c' * 255} · ConvGPU"
    assert tab.evaluate("document.querySelector('img')") is None
    # However long a name is, the page is not wider than the window.
    assert tab.evaluate("document.documentElement.scrollWidth") == 500


def test_the_scheduler_goes_away_and_comes_back(house, page, picture):
    house.holder("holder", 4 * GIB)
    tab = page()
    tab.wait("document.querySelector('#container-table tbody tr')")
    house.daemon.kill()
    tab.wait("document.querySelector('#status')?.dataset.state === 'away'", 10)
    assert "scheduler" in tab.text("#away")
    assert "holder" in tab.text("#container-table")  # what was known stays, and says from when it is
    assert "The figures are of" in tab.text("#away")
    picture(tab, "scheduler-away")
    house.daemon.start()
    tab.wait(LIVE, 20)
    assert tab.text("#away") == ""


@pytest.mark.parametrize("name", ["main.js", "stream.js", "style.css"])
def test_a_page_of_which_a_file_did_not_come_loads_itself_again(house, browser, name):
    tab = browser.page("about:blank")
    tab.refuse(f"*/{name}")
    tab.go(house.url)
    tab.wait("performance.getEntriesByType('navigation')[0].type === 'reload'")
    tab.refuse()
    tab.wait(f"{LIVE} && getComputedStyle(document.querySelector('#status')).display === 'flex'")
    tab.close()


def test_the_dashboard_ends_and_the_page_says_so(house, page):
    tab = page()
    assert house.stop_dashboard() == 0
    tab.wait("document.querySelector('#status')?.dataset.state === 'lost'", 10)
    assert "convgpu dashboard" in tab.text("#away")
    tab.complaints = list  # the browser says that nobody answers, and is right


def test_everything_by_keyboard(house, page):
    for name in ("one", "two", "three"):
        house.holder(name, GIB)
    tab = page()
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 3")
    tab.press("/", "/")
    for letter in "t":
        tab.press(letter, letter)
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 2")
    assert tab.text("#containers-count") == "2 of 3"
    tab.press("Escape")
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 3")

    tab.evaluate("document.querySelector('#container-table a[tabindex=\"0\"]').focus()")
    tab.press("ArrowDown")
    tab.press("End")
    assert tab.evaluate("document.activeElement.innerText") == "three"
    tab.press("Enter", "\r")
    tab.wait("document.querySelector('#container').checkVisibility()")
    assert tab.text("#container-title") == "three"
    assert tab.evaluate("document.activeElement.id") == "container-title"
    tab.press("Escape")
    tab.wait("document.querySelector('#overview').checkVisibility()")

    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "light dark"
    tab.press("t", "t")
    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    tab.press("?", "?")
    assert tab.evaluate("document.querySelector('#help').open")


def test_the_tab_key_reaches_each_part_once(house, page):
    for name in ("one", "two"):
        house.holder(name, GIB)
    tab = page()
    tab.wait("document.querySelectorAll('#container-table tbody tr').length === 2")
    tab.evaluate("document.querySelector('#all-decisions').click()")
    order = "[...document.querySelectorAll('*')].filter((e) => e.tabIndex === 0 && e.checkVisibility())"
    names = f"{order}.map((e) => e.id || e.className || e.closest('table')?.id || e.getAttribute('href'))"
    assert tab.evaluate(names) == [
        *["skip", "#", "theme", "keys", "span", "past", "filter", "scroll", "container-table"],
        *["all-decisions", "scroll", "decisions"],
    ]


def test_eight_devices_and_long_names_stay_on_one_screen(tmp_path, browser, picture):
    from page_world import house as open_house  # noqa: PLC0415 - one of its own, with more devices

    with open_house(tmp_path, "simulated:" + ",".join(["80GiB"] * 8)) as house:
        for number in range(8):
            house.container(f"{number}-{'long' * 60}", 70 * GIB)
            house.process(f"{number}-{'long' * 60}").allocate(60 * GIB, number % 4)
        tab = browser.page(house.url)
        tab.wait(f"{WAITING} > 0 && document.querySelectorAll('.device').length === 8")
        picture(tab, "eight-devices")
        assert tab.evaluate("document.documentElement.scrollWidth") == 1280
        assert tab.evaluate("document.querySelector('#queue tbody tr').getBoundingClientRect().bottom < innerHeight")
        assert tab.complaints() == []
        tab.close()


def test_many_tabs_share_one_stream(house, page):
    tabs = [page(own_window=True) for _ in range(7)]  # one more than the connections that a browser opens to a host
    house.holder("holder", GIB)
    for tab in tabs:
        tab.wait("document.querySelectorAll('#container-table tbody tr').length === 1", 5)
    # The one of the shared worker, which is no tab: none of the tabs asked for a stream itself.
    assert [url for tab in tabs for url in tab.requested() if url.endswith("/stream")] == []


def test_who_reads_slowly_or_never_keeps_nobody_waiting(house, page):
    port, token = house.url.removeprefix("http://127.0.0.1:").split("/")[:2]
    idle = []
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", int(port)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(f"GET /{token}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        idle.append(connection)
    tab, took = page(), []
    while not took or (took[-1] >= 4 and len(took) < 5):  # a busy machine holds up one or the other
        rows = f"document.querySelectorAll('#container-table tbody tr').length === {len(took) + 1}"
        took.append(seconds_of(tab, rows, functools.partial(house.holder, f"holder-{len(took)}", GIB)))
    assert took[-1] < 4, took  # for who waits until all have read it is never there
    for connection in idle:
        connection.close()


def test_two_hundred_containers(tmp_path, browser, picture):
    """The page stays responsive: `benchmarks/page.py` says by how much."""
    from page_world import house as open_house  # noqa: PLC0415 - one of its own, with a larger device

    with open_house(tmp_path, "simulated:140GiB") as house:
        for number in range(200):
            house.container(f"job-{number:03d}", 2 * GIB)
            house.process(f"job-{number:03d}").allocate((1000 - number) * MIB)
        tab = browser.page(house.url, dark=True)
        tab.wait("document.querySelectorAll('#container-table tbody tr').length === 200")
        wait_until(lambda: bool(tab.evaluate(f"{WAITING} > 0")), "somebody waits")
        picture(tab, "200-containers-dark")
        tab.resize(800, 1100)
        picture(tab, "200-containers-dark-800")
        assert tab.evaluate("document.documentElement.scrollWidth") == 800
        tab.theme("light")
        tab.resize(400, 900)
        picture(tab, "200-containers-narrow")
        assert tab.evaluate("document.documentElement.scrollWidth") == 400
        assert tab.complaints() == []
        tab.close()
