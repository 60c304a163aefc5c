"""What holds a container to its share of the network, up to the words of tc; the real thing is in tests/ways."""

import json

import pytest

from convgpu.runtime.network.fence import Link, NoFence, bucket, pairs, read_counters, read_links, wanted
from convgpu.runtime.network.rate import format_rate, parse_rate
from convgpu.runtime.network.shares import Shares

OWN = {"namespaces": [{"type": "mount"}, {"type": "network"}]}
SHOWN = [
    {},
    {"ifindex": 1, "ifname": "lo"},
    {"ifindex": 2, "link_index": 7, "ifname": "eth0", "link_netnsid": 0, "linkinfo": {"info_kind": "veth"}},
    {"ifindex": 3, "link_index": 2, "ifname": "eth1", "linkinfo": {"info_kind": "macvlan"}},
]
ETH0 = Link("eth0", 2, "veth", 7)
COUNTERS = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
  veth1: 700 1 0 0 0 0 0 0 300 1 0 0 0 0 0 0
  veth12: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0
"""  # noqa: E501 - as the kernel prints it


def config(*env, linux=OWN, **process):
    return {"process": {"env": list(env), **process}, "linux": linux}


@pytest.mark.parametrize(
    ("text", "bits"), [("2gbit", 2 * 10**9), ("2G", 2 * 10**9), ("500 mbps", 5 * 10**8), ("1500kbit/s", 15 * 10**5)]
)
def test_rates_are_read_and_written(text, bits):
    assert (parse_rate(text), parse_rate(format_rate(bits))) == (bits, bits)


@pytest.mark.parametrize("text", ["", "0gbit", "-1gbit", "2", "999kbit", "1001gbit", "2gbyte", "1.5gbit"])
def test_what_is_no_rate_says_what_to_write(text):
    with pytest.raises(ValueError, match="is no bandwidth: write 2gbit or 500mbit, from 1mbit to 1000gbit"):
        parse_rate(text)


def test_who_asks_for_nothing_gets_no_fence():
    assert wanted(config("CONVGPU_NETWORK=")) is None
    assert wanted({}) is None


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (config("CONVGPU_NETWORK=2"), "CONVGPU_NETWORK: '2' is no bandwidth"),
        (config("CONVGPU_NETWORK=2gbit", linux={"namespaces": []}), "a network that is not its own"),
        (
            config("CONVGPU_NETWORK=2gbit", linux={"namespaces": [{"type": "network", "path": "/proc/7/ns/net"}]}),
            "a network that is not its own",
        ),
        (config("CONVGPU_NETWORK=2gbit", capabilities={"bounding": ["CAP_NET_ADMIN"]}), "--cap-add NET_ADMIN"),
    ],
)
def test_what_nothing_could_hold_is_refused(asked, text):
    with pytest.raises(NoFence, match=text):
        wanted(asked)


def test_only_ends_of_one_pair_belong_together():
    """The index of a macvlan's other end may be that of a veth, and is that of the host's card."""
    inside = read_links(json.dumps(SHOWN))
    assert inside == [Link("lo", 1, "", 0), ETH0, Link("eth1", 3, "macvlan", 2)]
    outside = [Link("eth0", 2, "", 0), Link("veth0", 7, "veth", 5), Link("veth1", 7, "veth", 2)]
    assert pairs(inside[:2], outside) == [("eth0", "veth1")]
    with pytest.raises(NoFence, match=r"eth1 \(macvlan\) is on no bridge of this host"):
        pairs(inside, outside)
    with pytest.raises(NoFence, match=r"eth0 \(veth\) is on no bridge of this host"):
        pairs([ETH0], outside[:2])


def test_a_bucket_holds_ten_milliseconds_and_at_least_two_large_packets():
    assert bucket("veth1", 10**9)[:9] == [
        *("qdisc", "replace", "dev", "veth1", "root", "tbf"),
        *("rate", "1000000000bit", "burst"),
    ]
    assert [bucket("v", rate)[9] for rate in (10**9, 10**6)] == ["1250000b", "131072b"]


def test_what_the_host_s_end_gets_the_container_sent():
    assert read_counters(COUNTERS, ["veth1"]) == (300, 700)
    assert read_counters(COUNTERS, []) == (0, 0)


def test_notes_of_containers_without_a_job_go_with_them(tmp_path):
    shares = Shares(tmp_path / "notes")
    shares.note("a", 10**9)
    shares.note("b", 10**9, "12")
    for container in ("a", "b", "unknown"):
        shares.measure(container)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["b"]
    assert json.loads((tmp_path / "notes/b").read_text()) == {"rate": 10**9, "job": "12", "received": 0, "sent": 0}
    shares.note("b", None)
    assert list((tmp_path / "notes").iterdir()) == []


@pytest.mark.parametrize("written", [b"", b'{"rate": 1', b"\xff"])
def test_a_damaged_note_keeps_no_container(tmp_path, written):
    (tmp_path / "a").write_bytes(written)
    Shares(tmp_path).measure("a")
    assert (tmp_path / "a").read_bytes() == written
    with pytest.raises(ValueError, match=r"Expecting|decode"):  # it does not start unfenced either
        Shares(tmp_path).fence("a", ["runc"])
