"""Strict rules of calls that reach further than they seem: lists of processes, networks, fields beside others."""

import json

import pytest
import strict_site
from engine_says import inspected

from convgpu.authz.site.rules import parse_rules
from convgpu.plugin.docker_api.authorization import Authorizer, pass_at_once

ELSEWHERE = "../../../tmp/evil"


@pytest.mark.parametrize("given", [None, "", "aux", "-ef", "-eLf", "-eo pid,user,args", "-o pid", "axo pid,comm,%cpu"])
def test_processes_are_listed(strict, given):
    query = "" if given is None else f"?ps_args={given.replace(' ', '%20').replace('%cpu', '%25cpu')}"
    assert strict.judge(b"", f"/v1.41/containers/c/top{query}", "GET").allow
    assert strict.judge(b"", f"/v1.41/containers/more/top{query}", "GET").rule == "strict-capabilities"


@pytest.mark.parametrize(
    "given",
    [
        "e", "auxe", "axe", "e -ef", "-ef e", "aux&ps_args=e", "ef", "-eo pid,args=PID", "-eoppid=PID,args",
        "-eo uid=PID,args", "-eo ppid=PID", "-o uid,args", "-eo pid,args e", "-eo pid -C x", "--deselect", "-p 1 u",
        "-eo pid,environ", "-ef\te", "-eo pid,args,", "eww", " ", "-ef ", "-eo\tpid,args", "-eo pid%0ae",
    ],
)  # fmt: skip
def test_no_variables_and_no_other_processes_are_listed(strict, given):
    """BSD's `e` shows variables; of a column that is called PID the Engine takes rows of others for the container's."""
    uri = f"/v1.41/containers/c/top?ps_args={given.replace(' ', '%20')}"
    assert strict.judge(b"", uri, "GET").rule == "strict-listing"


def test_who_watches_a_host_may_list_as_the_rules_say(strict):
    strict.rules = parse_rules(strict_site.RULES + '[[exempt]]\nusers = ["local"]\nrules = ["strict-listing"]')
    assert strict.judge(b"", "/v1.41/containers/c/top?ps_args=-eo%20pid,cgroup", "GET").allow


def test_a_volume_driver_beside_the_host_config(strict):
    """Engines take it from there where the HostConfig names none."""
    beside = {"Image": "i", "HostConfig": {"Binds": ["v:/x:nocopy"]}, "VolumeDriver": ELSEWHERE}
    assert strict.judge(beside).rule == "strict-fields"
    assert strict.judge({**beside, "VolumeDriver": None}).allow
    assert strict.judge({"Image": "i", "Binds": ["v:/x"], "VolumeDriver": ELSEWHERE}).rule == "strict-drivers"


@pytest.mark.parametrize("name", ["Privileged", "Cpuset", "FieldOfTomorrow", "Runtime", "Binds"])
def test_fields_beside_the_host_config(strict, name):
    assert strict.judge({"Image": "i", "HostConfig": {}, name: ["x"]}).rule == "strict-fields"


def network(strict, **more):
    return strict.judge({"Name": "n", "Driver": "bridge", **more}, "/v1.41/networks/create").rule


def test_networks_take_no_interface_of_the_host(strict):
    mtu = {"com.docker.network.driver.mtu": "1400"}
    assert network(strict, Options=mtu) == network(strict, Options=None, CheckDuplicate=True) == "nothing-to-judge"
    assert network(strict, Options={"com.docker.network.bridge.name": "br0"}) == "strict-fields"
    assert network(strict, Driver="macvlan") == "nothing-to-judge"
    assert network(strict, Driver="macvlan", Options={"parent": "eth0"}) == "strict-fields"
    assert network(strict, IPAM={"Config": []}) == network(strict, IPAM={"Config": None}) == "nothing-to-judge"
    assert network(strict, IPAM={"Config": [{"Subnet": "9.9.9.0/24"}]}) == "strict-fields"
    assert network(strict, IPAM={"Config": [{}]}) == network(strict, IPAM={"Options": {"a": "b"}}) == "strict-fields"
    assert network(strict, Ingress=True) == network(strict, Tomorrow=1) == "strict-fields"
    listed = strict_site.RULES + 'fields = ["network parent=eth0.7"]'
    strict.rules = parse_rules(listed)
    assert network(strict, Driver="macvlan", Options={"parent": "eth0.7"}) == "nothing-to-judge"
    assert network(strict, Driver="macvlan", Options={"parent": "eth0"}) == "strict-fields"


def place(name, value):
    return {"DriverOpts": {name: value}}


ENDPOINTS = (
    (place("com.docker.network.endpoint.ifname", "lan"), True),
    (place("com.docker.network.endpoint.sysctls", "net.core.somaxconn=511"), True),
    (place("com.docker.network.endpoint.sysctls", "net.core.somaxconn=511, net.ipv4.conf.IFNAME.x=1"), False),
    (place("tomorrow", "1"), False),
    (None, True),
)


@pytest.mark.parametrize(("endpoint", "passes"), ENDPOINTS)
def test_the_options_of_a_place_in_a_network(strict, endpoint, passes):
    body = {"Image": "i", "HostConfig": {}, "NetworkingConfig": {"EndpointsConfig": {"n": endpoint}}}
    assert strict.judge(body).allow is passes
    joins = {"Container": "c", "EndpointConfig": endpoint}
    assert strict.judge(joins, "/v1.41/networks/n/connect").allow is passes
    starting = inspected({"Runtime": "convgpu"}, mounts=()) | {"NetworkSettings": {"Networks": {"n": endpoint}}}
    assert strict.start(starting).allow is passes


@pytest.mark.parametrize("action", ["connect", "disconnect"])
def test_whom_networks_take_and_leave(strict, action):
    uri = f"/v1.41/networks/n/{action}"
    assert strict.judge({"Container": "c"}, uri).allow
    assert strict.judge({"Container": "more"}, uri).rule == "strict-capabilities"
    assert strict.judge(b"", uri).rule == "body-withheld"


@pytest.mark.parametrize("query", ["container=more", "container=c&container=more", "container=c;container=more"])
def test_a_commit_of_any_container_that_is_named(strict, query):
    assert strict.judge(b"", "/v1.41/commit?container=c").allow
    assert strict.judge(b"", f"/v1.41/commit?{query}").rule == "strict-capabilities"


def test_builds_of_what_the_host_would_fetch(strict):
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"build"'))
    for remote in ("git@host:x.git", "http://169.254.169.254/x", "git://x/y#:..", "github.com/x/y"):
        assert strict.judge(b"", f"/v1.41/build?remote={remote}").rule == "strict-fields"
    assert strict.judge(b"", "/v1.41/build?remote=").allow


def test_builds_with_what_others_loaded_as_their_cache(strict):
    """Of two images that are each other's parents the Engine looked for the first until its memory was used up."""
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"build"'))
    assert strict.judge(b"", '/v1.41/build?cachefrom=["lpa:1"]').rule == "strict-fields"
    assert strict.judge(b"", "/v1.41/build?cachefrom=[]").allow


NULLS = ({"Ulimits": [None]}, {"Devices": [{}, None]}, {"DeviceRequests": [{"Capabilities": [[None]]}]})


@pytest.mark.parametrize("host", NULLS)
def test_a_null_in_a_list_at_which_the_engine_ends_a_call_with_the_containers_lock_held(strict, host):
    assert strict.judge({"Image": "i", "HostConfig": host}).rule == "strict-nulls"
    assert strict.judge(host, "/v1.41/containers/c/update").rule == "strict-nulls"
    assert strict.judge({"Image": "i", "HostConfig": dict.fromkeys(host), "Cmd": ["null"]}).allow


@pytest.mark.parametrize(("inner", "rule"), [("null", "strict-nulls"), ("", "no-gpu")])
def test_a_null_is_found_however_deep_it_lies(strict, inner, rule):
    """Deeper than Python calls itself a call had no verdict, and the log a thousand lines."""
    deep = "[" * 900 + inner + "]" * 900
    assert strict.judge(f'{{"Image": "i", "Labels": {{"a": "null"}}, "Cmd": {deep}}}'.encode()).rule == rule


def test_a_null_in_a_list_of_a_build(strict):
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"build"'))
    assert strict.judge(b"", "/v1.41/build?ulimits=[null]").rule == "strict-nulls"
    assert strict.judge(b"", '/v1.41/build?buildargs={"A":null}&t=null&labels=[null').allow


def test_a_group_without_a_name(strict):
    """At the start the Engine reads it as an empty line of /etc/group, and panics."""
    assert strict.judge({"Image": "i", "HostConfig": {"GroupAdd": ["video", ""]}}).rule == "strict-fields"
    assert strict.judge({"Image": "i", "HostConfig": {"GroupAdd": ["video"]}}).allow


def test_half_of_a_character(strict):
    """Go puts another character in its place."""
    for text in ("\\ud800", "\\uDC00x"):
        raw = f'{{"Image": "i", "HostConfig": {{"Binds": ["/{text}:/x"]}}}}'.encode()
        assert strict.judge(raw).rule == "body-ambiguous"
    assert strict.judge(b'{"Image": "i", "Cmd": ["\\ud83d\\ude00"]}').allow


def test_who_is_refused_while_no_entry_is_in_force_hears_of_it(strict):
    assert "`convgpu authz status`" not in strict.judge({"Image": "i", "HostConfig": {"Privileged": True}}).message
    strict.rules = parse_rules('mode = "strict"')
    verdict = strict.judge({"Image": "i", "HostConfig": {"Binds": [f"{strict_site.DATA}:/x"]}})
    assert verdict.message.endswith("\nNo entry is in force at all; `convgpu authz status` says why."), verdict.message


def test_updates_and_volumes_of_swarm(strict):
    assert strict.judge({"Memory": 1, "Devices": None}, "/v1.41/containers/c/update").allow
    assert strict.judge({"Devices": [{}]}, "/v1.41/containers/c/update").rule == "strict-fields"
    volume = {"Name": "v", "ClusterVolumeSpec": {"AccessMode": {}}}
    assert strict.judge(volume, "/v1.41/volumes/create").rule == "strict-calls"


def test_what_a_file_is_is_told_to_nobody(strict):
    uri = "/v1.41/containers/more/archive?path=/etc/shadow"
    asked = json.dumps({"RequestMethod": "HEAD", "RequestUri": uri}).encode()
    assert pass_at_once("/AuthZPlugin.AuthZReq", asked, strict=True) is None
    assert b"strict-capabilities" in Authorizer(strict._judge(), lambda: strict.rules).answer(asked)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/dev/sda", "no-gpu"),
        ("/dev/disk/by-id/nvme-x", "no-gpu"),
        ("/dev/../root/.ssh/id_rsa", "strict-fields"),
        ("/root", "strict-fields"),
        ("/dev/fd/3/x", "strict-fields"),
    ],
)
def test_the_engine_says_of_no_path_whether_it_is_there(strict, path, rule):
    """It would say so when the container starts."""
    speeds = {"blkioWeightDevice": [{"Path": path, "Weight": 10}]}
    assert strict.judge({"Image": "i", "HostConfig": speeds}).rule == rule
    updated = strict.judge(speeds, "/v1.41/containers/c/update")
    assert updated.rule == rule.replace("no-gpu", "nothing-to-judge")


@pytest.mark.parametrize("what", ["ReadBps", "WriteBps", "ReadIOps", "WriteIOps"])
def test_no_container_makes_a_disk_slow(strict, what):
    """A thread that waits for a slow disk is ended by nothing, and keeps the GPU's memory of its process."""
    speeds = {f"BlkioDevice{what}": [{"Path": "/dev/vda", "Rate": 1 << 18}]}
    refused = strict.judge({"Image": "i", "HostConfig": speeds})
    assert (refused.rule, f"BlkioDevice{what}" in refused.message) == ("strict-fields", True)
    assert strict.judge(speeds, "/v1.41/containers/c/update").rule == "strict-fields"
    strict.rules = parse_rules(strict_site.RULES + f'fields = ["BlkioDevice{what}"]')
    assert strict.judge({"Image": "i", "HostConfig": speeds}).rule == "no-gpu"


@pytest.mark.parametrize(
    "host",
    [
        {"Mounts": [{"Type": "tmpfs", "Target": "/x", "Tomorrow": 1}]},
        {"Mounts": [{"Type": "tmpfs", "Target": "/x", "tmpfsOptions": {"Mode": 1, "Tomorrow": 1}}]},
        {"Mounts": [{"Type": "bind", "Source": strict_site.DATA, "Target": "/x", "BindOptions": {"Tomorrow": True}}]},
        {"LogConfig": {"Type": "json-file", "Tomorrow": "x"}},
        {"RestartPolicy": {"Name": "always", "Tomorrow": 1}},
    ],
)
def test_fields_within_fields_are_known_too(strict, host):
    verdict = strict.judge({"Image": "i", "HostConfig": host})
    assert (verdict.rule, "omorrow" in verdict.message) == ("strict-fields", True)


CHECKPOINTS = (
    ("POST", "start?checkpoint=x", b"", ("strict-calls", "no-gpu")),
    ("POST", "start?checkpoint=x&checkpoint-dir=/home/eve", b"", ("strict-calls", "strict-fields")),
    ("POST", "start?checkpoint-dir=/home/eve", b"", ("strict-fields", "strict-fields")),
    ("POST", "checkpoints", {"CheckpointID": "x"}, ("strict-calls", "nothing-to-judge")),
    ("POST", "checkpoints", {"CheckpointID": "x", "CheckpointDir": "/etc"}, ("strict-calls", "strict-fields")),
    ("GET", "checkpoints?dir=/root", b"", ("strict-calls", "strict-fields")),
    ("DELETE", "checkpoints/x?dir=/root", b"", ("strict-calls", "strict-fields")),
)


@pytest.mark.parametrize(("method", "path", "body", "rules"), CHECKPOINTS)
def test_checkpoints_and_their_folders(strict, method, path, body, rules):
    """The Engine writes and reads them as root; what is restored has the users and capabilities that they say."""
    uri = f"/v1.41/containers/c/{path}"
    assert strict.judge(body, uri, method).rule == rules[0]
    strict.rules = parse_rules(strict_site.RULES.replace('"commit"', '"checkpoints"'))
    assert strict.judge(body, uri, method).rule == rules[1]


@pytest.mark.parametrize("uri", ["/v1.41/containers/c/start", "/v1.41/containers/c/st%61rt", "/containers/c/%72estart"])
def test_an_answer_about_a_start_is_read_however_its_address_is_spelled(uri):
    answered = json.dumps({"RequestMethod": "POST", "RequestUri": uri, "ResponseStatusCode": 204}).encode()
    assert pass_at_once("/AuthZPlugin.AuthZRes", answered) is None
