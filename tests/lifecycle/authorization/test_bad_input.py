"""Bad options are refused when the volume is created, in one line, and change nothing."""

import pytest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("memory=0", "memory"),
        ("memory=-1", "512m"),
        ("memory=20XB", "512m"),
        ("memory=much", "512m"),
        ("memory=17g", "16"),
        ("colour=red", "memory"),
    ],
)
def test_volume_create_refuses(engine, plugin, option, expected):
    done = engine.run("volume", "create", "-d", plugin, "-o", option, "refused", check=False)
    assert done.returncode != 0
    text = done.stderr.strip()
    assert "\n" not in text
    assert expected in text
    assert option.partition("=")[2] in text or option.partition("=")[0] in text
    assert "refused" not in engine("volume", "ls", "-q").split()
    assert engine.containers(plugin) == []
