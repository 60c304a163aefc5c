"""The doctor's warning of /proc and /sys that are read-only at their top only."""

import pytest

from convgpu.cli.doctor.host_mounts import judge_mounts


def row(name: str, *sources: str) -> dict[str, object]:
    return {"Names": [f"/{name}"], "Mounts": [{"Type": "bind", "Source": source, "RW": False} for source in sources]}


def test_containers_that_can_write_below_are_named() -> None:
    rows = [row("exporter", "/proc", "/sys"), row("web", "/srv"), row("whole", "/"), {"Names": None, "Mounts": None}]
    (finding,) = judge_mounts("20.10.24+dfsg1", rows)
    assert (finding.check, finding.state) == ("mounts", "warn")
    assert finding.seen.startswith("exporter, whole can write cgroups")


@pytest.mark.parametrize(
    ("version", "rows"), [("25.0.1", [row("exporter", "/sys")]), ("24.0", []), ("?", [row("x", "/")])]
)
def test_newer_engines_and_other_mounts_are_no_matter(version: str, rows: list[dict[str, object]]) -> None:
    assert list(judge_mounts(version, rows)) == []
