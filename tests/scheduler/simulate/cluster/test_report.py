"""Plots of simulated runs."""

from xml.etree import ElementTree

import pytest

from convgpu.simulate.cluster.engine import Cluster
from convgpu.simulate.cluster.jobs import Request
from convgpu.simulate.cluster.report import Plot, Usage, completions, page
from convgpu.simulate.cluster.schemes import schemes


def test_use_over_time_is_a_mean_over_equal_parts():
    usage = Usage()
    for at, cards in ((0.0, 2.0), (1800.0, -1.0), (3600.0, -1.0)):
        usage.add(at, cards)
    line = usage.line(4)
    assert [share for _, share in line] == pytest.approx([0.5] * 200 + [0.25] * 200)
    assert (line[0][0], line[-1][0]) == pytest.approx((0.5 / 400, 399.5 / 400))
    assert sum(share for _, share in line) / 400 * 4 * 3600 == pytest.approx(2 * 1800 + 1800)
    assert Usage().line(4) == []


def test_a_clusters_use_is_all_the_work_of_its_jobs():
    requests = [Request(str(number), float(number), 50.0, 1, 0.5, 0.5) for number in range(9)]
    cluster = Cluster(schemes()["shared-first-come"], [2])
    jobs = cluster.run(requests)
    hours = cluster.usage.changes[-1][0] / 3600
    mean = sum(share for _, share in cluster.usage.line(2)) / 400
    assert mean * 2 * hours * 3600 == pytest.approx(9 * 50 * 0.5)
    ends = completions(jobs)
    assert (ends[0][1], ends[-1][1]) == (pytest.approx(1 / 9), 1.0)
    assert ends == sorted(ends)


def test_a_page_shows_each_line_and_escapes_names():
    plot = Plot("Completion", "s", "share", {"<a>": [(1.0, 0.5), (100.0, 1.0)], "b": [(5.0, 1.0)]}, logarithmic=True)
    text = page("a & b", [plot, Plot("empty", "x", "y", {})], [["POLICY"], ["<a>"]])
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])  # noqa: S314 - our own
    lines = [child.attrib["points"] for child in svg if child.tag == "polyline"]
    assert lines == ["70.0,142.5 710.0,10.0", "293.7,10.0"]
    assert "<a>" not in text
    assert text.count("<svg") == 1
