"""Peaks of jobs in the field Extra of the nodes."""

import json

import pytest

from convgpu.cluster.listing import node_names
from convgpu.cluster.peaks import MOST, extra_of, read_network, read_peaks, with_network, with_peak


def nodes(*extras):
    return json.dumps({"nodes": [{"name": "n", "extra": extra} for extra in extras]})


def test_the_newest_job_comes_first_and_the_oldest_is_forgotten():
    extra = ""
    for job in range(1, MOST + 3):
        extra = with_peak(extra, job, 10 * job)
    assert extra.split()[:3] == ["convgpu-peaks", "52=520", "51=510"]
    assert len(read_peaks(nodes(extra))) == MOST


def test_the_highest_peak_of_a_job_counts():
    extra = with_peak(with_peak("", 1, 20), 1, 10)
    assert extra_of(nodes(extra)) == "convgpu-peaks 1=20"
    assert read_peaks(nodes(extra, "convgpu-peaks 1=30 2=5", "")) == {1: 30, 2: 5}


def test_what_containers_sent_stands_beside_their_peaks():
    extra = with_network(with_peak(with_peak("", 1, 20), 2, 30), 2, 500, 7)
    assert extra == "convgpu-peaks 2:net=500/7 2=30 1=20"
    text = nodes(extra, "convgpu-peaks 2:net=1/1 3:net=x/1 4:net=5 5:net=1/", "rack=7")
    assert (read_network(text), read_peaks(text)) == ({2: (501, 8)}, {1: 20, 2: 30})
    assert with_network("rack=7", 1, 2, 3) is None


def test_what_a_site_writes_there_stays():
    assert with_peak("rack=7", 1, 20) is None
    assert read_peaks(nodes("rack=7", "convgpu-peaks x=1 2=y 3=4")) == {3: 4}
    with pytest.raises(ValueError, match="Expected"):
        read_peaks('{"nodes": [7]}')


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-2,4],m1", ["n1", "n2", "n4", "m1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1-2]", ["r1n1", "r2n1", "r1n2", "r2n2"]),
    ],
)
def test_lists_of_nodes(text, names):
    assert node_names(text) == names
