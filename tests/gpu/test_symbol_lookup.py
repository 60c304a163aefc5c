"""Through every lookup the hook is found, for exactly the calls for which the real driver gives the hooked symbol."""

import json
import re
from pathlib import Path

from containers import Start

TABLES = Path(__file__).parents[2] / "hook/src/tables"
LISTS = "".join((TABLES / name).read_text() for name in ("hooked_calls.h", "gated_calls.h", "stream_calls.h"))
HOOKED = dict(re.findall(r"^    X\((\w+), (\w+), \d+", LISTS, re.MULTILINE))
HOOK = "libconvgpu.so"
Place = list


def look(start: Start, hook: str) -> dict[str, dict[str, Place | None]]:
    words = [f"{symbol}:{base}" for symbol, base in HOOKED.items()]
    container = start("lookups", "1g", "symbol_lookup.py", *words, hook=hook)
    assert container.wait() == 0, container.output()
    return json.loads(container.output().strip().splitlines()[0])


def test_each_door_gives_the_hook_where_the_driver_gives_the_hooked_symbol(
    start: Start, figures: dict[str, object]
) -> None:
    real = look(start, "")
    ours = look(start, f"/run/convgpu/{HOOK}")
    exported = {tuple(place[:2]): symbol for symbol, place in real["dlsym"].items() if place}
    found: dict[str, dict] = {"symbols": {}, "other places": {}, "wrong": {}}
    for question, place in real["cuGetProcAddress_v2"].items():
        answer = ours["cuGetProcAddress_v2"][question]
        symbol = exported.get(tuple(place[:2])) if place else None
        if symbol:
            found["symbols"][question] = symbol
        elif place:
            found["other places"][question] = [place, answer]
        expected = [HOOK, symbol] if symbol in HOOKED else place and place[:2]
        got = [answer[0], answer[2]] if answer and answer[0] == HOOK else answer and answer[:2]
        if got != expected:
            found["wrong"][question] = {"driver": symbol or place, "hook": got}
    missing = [symbol for symbol in HOOKED if not real["dlsym"][symbol]]
    figures["lookups"] = found | {"not in this driver": missing}
    for symbol in HOOKED:
        if symbol not in missing:
            place = ours["dlsym"][symbol]
            assert (place[0], place[2]) == (HOOK, symbol)
    assert found["wrong"] == {}
