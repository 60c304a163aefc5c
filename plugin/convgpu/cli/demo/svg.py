"""The timeline of the demonstration as an SVG, for light and dark pages, with nothing from elsewhere. Pure."""

from collections.abc import Sequence
from html import escape
from typing import Final

from convgpu.cli.demo.timeline import Timeline, seconds_of_axis
from convgpu.protocol.sizes import format_size

_WIDTH: Final = 800
_LEFT: Final = 120  # where time begins
_RIGHT: Final = 24
_TOP: Final = 64
_ROW: Final = 44  # from one bar to the next
_BAR: Final = 24  # its height

_STYLE: Final = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .small { font-size: 12px; fill: #59636e } .line { stroke: #d1d9e0 }
.page { fill: #ffffff } .run { fill: #2f81f7 } .wait { fill: url(#waits) } .edge { fill: none; stroke: #bf8700 }
.out { fill: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .line { stroke: #3d444d } .page { fill: #0d1117 }
}
"""
_WAITS: Final = (
    '<pattern id="waits" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="8" height="8" fill="#fae17d"/><rect width="3" height="8" fill="#bf8700"/></pattern>'
)


def draw(timelines: Sequence[Timeline], length: float, caption: str) -> str:
    """Return the picture of containers over `length` seconds; `caption`: one line about where this was seen."""
    height = _TOP + _ROW * len(timelines) + 84
    scale = (_WIDTH - _LEFT - _RIGHT) / max(length, 0.001)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(_in_words(timelines))}</title>',
        f"<style>{_STYLE}</style><defs>{_WAITS}</defs>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_RIGHT}" y="30">Containers that share one GPU: who runs, and who waits</text>',
        *_axis(length, scale, _TOP + _ROW * len(timelines)),
        *(
            line
            for number, timeline in enumerate(timelines)
            for line in _life(timeline, length, scale, _TOP + _ROW * number)
        ),
        *_legend(height - 40, shows_out=any(timeline.stops for timeline in timelines)),
        f'<text class="small" x="{_RIGHT}" y="{height - 12}">{escape(caption)}</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _in_words(timelines: Sequence[Timeline]) -> str:
    waits = [f"{timeline.name} waits {_waited(timeline):.1f} s" for timeline in timelines if timeline.pauses]
    return f"{len(timelines)} containers share one GPU; " + (", ".join(waits) or "none waits")


def _waited(timeline: Timeline) -> float:
    return sum((pause.begin if pause.end is None else pause.end) - pause.begin for pause in timeline.pauses)


def _axis(length: float, scale: float, bottom: int) -> list[str]:
    lines = []
    for second in seconds_of_axis(length, 12):
        x = _LEFT + second * scale
        lines.append(f'<line class="line" x1="{x:.1f}" y1="{_TOP - 12}" x2="{x:.1f}" y2="{bottom}"/>')
        lines.append(f'<text class="small" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{second} s</text>')
    return lines


def _life(timeline: Timeline, length: float, scale: float, y: int) -> list[str]:
    lines = [
        f'<text x="{_RIGHT}" y="{y + 12}">{escape(timeline.name)}</text>',
        f'<text class="small" x="{_RIGHT}" y="{y + 27}">limit {escape(format_size(timeline.limit))}</text>',
    ]
    if timeline.started is None:
        return lines
    end = length if timeline.ended is None else timeline.ended

    def bar(kind: str, begin: float, until: float) -> str:
        x, room = _LEFT + begin * scale, max((until - begin) * scale, 1.5)
        return f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{room:.1f}" height="{_BAR}"/>'

    lines.append(bar("run", timeline.started, end))
    for pause in timeline.pauses:
        until = end if pause.end is None else pause.end
        lines += [bar("wait", pause.begin, until), bar("edge", pause.begin, until)]
    lines += [bar("out", stop.begin, end if stop.end is None else stop.end) for stop in timeline.stops]
    return lines


def _legend(y: int, *, shows_out: bool) -> list[str]:
    out = [
        f'<rect class="out" x="{_LEFT + 400}" y="{y - 11}" width="24" height="12"/>',
        f'<text class="small" x="{_LEFT + 432}" y="{y}">stands still, its memory on the host</text>',
    ]
    return [
        *(out if shows_out else []),
        f'<rect class="run" x="{_LEFT}" y="{y - 11}" width="24" height="12"/>',
        f'<text class="small" x="{_LEFT + 32}" y="{y}">runs</text>',
        f'<rect class="wait" x="{_LEFT + 96}" y="{y - 11}" width="24" height="12"/>',
        f'<text class="small" x="{_LEFT + 128}" y="{y}">an allocation is paused, until memory is free</text>',
    ]
