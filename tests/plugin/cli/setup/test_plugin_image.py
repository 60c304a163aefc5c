"""How long a command waits for a plugin that was enabled a moment ago."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from convgpu.cli.setup.lifecycle import plugin_image
from convgpu.cli.terminal.errors import Unavailable

ENGINE = cast("Any", SimpleNamespace(plugin=lambda _driver: SimpleNamespace(socket="socket")))


@pytest.mark.parametrize(("after", "answers"), [(0.0, True), (60.0, True), (120.0, False)])
def test_a_plugin_that_begins_has_a_minute_and_a_half(
    monkeypatch: pytest.MonkeyPatch, after: float, answers: bool
) -> None:
    """Each question takes as long as it may: on a busy host one was not answered within 30 s."""
    seconds = [0.0]

    def devices() -> str:
        if seconds[0] >= after:
            return "devices"
        seconds[0] += 30.0
        raise Unavailable("it does not answer (timed out)")

    monkeypatch.setattr(plugin_image, "open_plugin", lambda *_: SimpleNamespace(devices=devices))
    clock = SimpleNamespace(monotonic=lambda: seconds[0], sleep=lambda _: None)
    monkeypatch.setattr(plugin_image, "time", clock)
    if answers:
        assert plugin_image.wait_for(ENGINE, "convgpu") == "devices"
    else:
        with pytest.raises(Unavailable, match="does not answer"):
            plugin_image.wait_for(ENGINE, "convgpu")
