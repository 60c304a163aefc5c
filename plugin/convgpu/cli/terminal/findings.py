"""The findings of the doctor, and their text. Pure."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from convgpu.protocol.layout import LIBRARY_PATH

State = Literal["ok", "warn", "fail", "skip"]
STYLES: Final[Mapping[State, str]] = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
OUT_OF_MEMORY: Final = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NAME: Final = 10  # characters of the longest check


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: the observation, and if something is wrong, the remedy."""

    check: str
    state: State
    seen: str
    mend: str = ""

    def lines(self, room: int | None = None) -> tuple[list[str], list[str]]:
        """Return the lines of the observation, of at most `room` characters, and those of the remedy.

        A command in the remedy stays on one line, so that it can be copied.
        """
        indent = " " * (6 + _NAME)
        first = f"{self.state:<4}  {self.check:<{_NAME}}{self.seen}"
        seen = [first] if room is None else textwrap.wrap(first, room, subsequent_indent=indent, break_long_words=False)
        return seen, [f"{indent}{line}" for line in self.mend.splitlines()]

    def data(self) -> dict[str, Any]:
        """Return it for programs."""
        return asdict(self)


def judge_entry_points(report: Mapping[str, Any], limit: str, gpu: str) -> Finding:
    """Judge a probe of the driver's entry points: `[error beyond the limit, error within it]` of each."""
    tried: Mapping[str, Sequence[int]] = report["entry_points"]
    if not report["preloaded"]:
        return Finding(
            "limit",
            "fail",
            "the library is not loaded into the container's programs: no limit holds",
            f"Look whether {LIBRARY_PATH} can be read in it, and whether its C library is glibc.",
        )
    leaks = [name for name, (over, _) in tried.items() if over == 0]
    if leaks:
        mend = "This must not be: please report it, with the driver's version."
        return Finding("limit", "fail", f"{limit} of {gpu}: more was given through {', '.join(leaks)}", mend)
    wrong = [f"{name} ({over})" for name, (over, _) in tried.items() if over != OUT_OF_MEMORY]
    if wrong:
        seen = f"{limit} of {gpu}: refused beyond it, but with another error than out of memory by {', '.join(wrong)}"
        return Finding("limit", "warn", seen)
    denied = [f"{name} ({within})" for name, (_, within) in tried.items() if within != 0]
    if denied:
        seen = f"{limit} of {gpu}: refused beyond it, but also within it by {', '.join(denied)}"
        return Finding("limit", "warn", seen, "Is the GPU full of other programs? See: convgpu devices")
    return Finding(
        "limit", "ok", f"{limit} of {gpu}: refused beyond it through {len(tried)} entry points, given within it"
    )


def judge_shown(report: Mapping[str, Any], limit: int, uuids: Sequence[str]) -> list[Finding]:
    """Judge the devices and sizes that driver and NVML show in a container: the scheduler's devices, and its limit."""
    findings = []
    strange = sorted(set(report["uuids"]) - set(uuids))
    if strange:
        findings.append(
            Finding(
                "driver",
                "fail",
                f"the container has a GPU that the plugin does not know: {', '.join(strange)}",
                "Start the plugin again, so that it looks for GPUs: docker plugin disable -f NAME, then enable it.",
            )
        )
    else:
        findings.append(Finding("driver", "ok", "driver and plugin mean the same GPU"))
    sizes = {"driver": report["total"], "NVML": report["nvml"]}
    other = [name for name, size in sizes.items() if size is not None and size != limit]
    if other:
        seen = f"{_show(other)} the container another size than its limit"
        findings.append(Finding("shown", "warn", seen, "Programs that take a share of what they see take too much."))
    else:
        names = [name for name, size in sizes.items() if size is not None]
        findings.append(Finding("shown", "ok", f"{_show(names)} the container its limit as the GPU's size"))
    return findings


def _show(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'show' if len(names) > 1 else 'shows'}"
