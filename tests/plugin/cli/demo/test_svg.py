from xml.etree import ElementTree as ET

from convgpu.cli.demo.svg import draw
from convgpu.cli.demo.timeline import Pause, Timeline, seconds_of_axis

GIB = 1 << 30
STORIES = (
    Timeline("A", 7 * GIB, started=0.0, ended=2.0),
    Timeline("B<&", 8 * GIB, started=1.0, pauses=(Pause(GIB, 1.5, 2.0, granted=True), Pause(GIB, 3.0)), ended=None),
    Timeline("C", GIB),
)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_has_a_bar_for_each_life_and_each_pause() -> None:
    root = ET.fromstring(draw(STORIES, 4.0, "seen <here>"))  # noqa: S314 - ours
    bars = [
        (bar.get("class"), float(bar.get("x", 0)), float(bar.get("width", 0)))
        for bar in root.iter(f"{SVG}rect")
        if bar.get("height") == "24"
    ]
    assert bars == [
        ("run", 120.0, 328.0),
        ("run", 284.0, 492.0),
        ("wait", 366.0, 82.0),
        ("edge", 366.0, 82.0),
        ("wait", 612.0, 164.0),
        ("edge", 612.0, 164.0),
    ]


def test_the_picture_says_in_words_what_it_shows_and_needs_nothing_from_elsewhere() -> None:
    picture = draw(STORIES, 4.0, "seen <here>")
    texts = [text.text for text in ET.fromstring(picture).iter() if text.text]  # noqa: S314 - ours
    assert "3 containers share one GPU; B<& waits 0.5 s" in texts
    assert {"B<&", "limit 8GiB", "seen <here>", "0 s", "4 s"} <= set(texts)
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_an_axis_has_round_steps() -> None:
    assert list(seconds_of_axis(9.4, 12)) == list(range(10))
    assert list(seconds_of_axis(40.0, 12)) == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert list(seconds_of_axis(0.0, 0)) == [0]
