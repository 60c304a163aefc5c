"""Calls that reach further than they seem, under strict rules on a real Engine."""

import re
import subprocess
from pathlib import Path

import pytest
from docker_engine import wait_for
from engine_endpoints import ENDPOINTS
from raw_engine import Call
from strict_run import API, body, logs, output

pytestmark = pytest.mark.engine


def test_the_table_has_every_endpoint_of_this_engine(start_engine):
    with start_engine(settings={"debug": True}) as engine:
        text = engine.log.read_text()
    found = {*re.findall(r"Registering (\w+), ([^\"\n]+)", text)}  # 20.10 in its way, 28.5 in another
    found |= {*re.findall(r"Registering route.* method=(\w+) path=\"?([^\"\s]+)", text)}
    assert len(found) > 90
    assert {f"{method} {path}" for method, path in found} - ENDPOINTS.keys() == set()


@pytest.fixture
def secretive(raw):
    """A container whose program has a variable of its own, which no record of the Engine shows."""
    made = raw.post(f"{API}/containers/create", body({}, "sh", "-c", "export KEY=of-mine; echo on; exec sleep 600"))
    container = made.json["Id"]
    assert raw.post(f"{API}/containers/{container}/start").status == 204
    wait_for("it runs", lambda: "on" in logs(raw, container))
    yield container
    raw.remove(container)


@pytest.mark.parametrize("given", ["e", "axe", "-eo%20pid,args%20e", "-eo%20uid=PID,args", "-eoppid=PID,args"])
def test_a_list_of_processes_shows_no_variables(raw, secretive, given):
    answer = raw.send(Call("GET", f"{API}/containers/{secretive}/top?ps_args={given}"))
    assert (answer.denied, b"strict-listing" in answer.raw, b"of-mine" in answer.raw) == (True, True, False), answer


@pytest.mark.parametrize("given", ["", "?ps_args=aux", "?ps_args=-eo%20pid,user,args"])
def test_a_list_of_processes_is_of_use(raw, secretive, given):
    answer = raw.send(Call("GET", f"{API}/containers/{secretive}/top{given}"))
    assert (answer.status, [row[-1] for row in answer.json["Processes"]]) == (200, ["sleep 600"])


@pytest.fixture
def bridge():
    """An interface of the host: of the tests' own network."""
    for words in ("link add cgbr type bridge", "addr add 10.77.0.1/24 dev cgbr", "link set cgbr up"):
        subprocess.run(["ip", *words.split()], check=True)
    yield "cgbr"
    subprocess.run(["ip", "link", "del", "cgbr"], check=True)


def test_no_network_takes_an_interface_of_the_host(raw, bridge):
    """The Engine would give it another address, and leave the host without its own."""
    addresses = {"Config": [{"Subnet": "10.78.0.0/24"}]}
    options = {"com.docker.network.bridge.name": bridge}
    answer = raw.post(f"{API}/networks/create", {"Name": "n", "Options": options, "IPAM": addresses})
    raw.send(Call("DELETE", f"{API}/networks/n"))
    shown = subprocess.run(["ip", "addr", "show", bridge], check=True, capture_output=True, text=True).stdout
    assert (answer.denied, b"strict-fields" in answer.raw, "10.77.0.1/24" in shown) == (True, True, True), answer


def test_no_network_has_addresses_of_others(raw):
    """The host would reach its name server, or who answers in its place, in a container."""
    addresses = {"Config": [{"Subnet": "9.9.9.0/24"}]}
    answer = raw.post(f"{API}/networks/create", {"Name": "n", "IPAM": addresses})
    way = subprocess.run(["ip", "route", "show", "9.9.9.0/24"], check=True, capture_output=True, text=True).stdout
    raw.send(Call("DELETE", f"{API}/networks/n"))
    assert (answer.denied, b"strict-fields" in answer.raw, way) == (True, True, ""), answer


@pytest.mark.parametrize("mode", ["none", "default", "bridge"])
def test_a_place_in_the_hosts_network_is_none(raw, mode):
    """`network=host` is in the site's list; a place beside another mode gives no more than that mode."""
    asked = body({"NetworkMode": mode}, "readlink", "/proc/self/ns/net")
    asked["NetworkingConfig"] = {"EndpointsConfig": {"host": {}}}
    made = raw.post(f"{API}/containers/create", asked)
    if made.status == 201:
        raw.post(f"{API}/containers/{made.json['Id']}/start")
        raw.post(f"{API}/containers/{made.json['Id']}/wait")
        assert logs(raw, made.json["Id"]) != f"{Path('/proc/self/ns/net').readlink()}\n"
        raw.remove(made.json["Id"])


# F_SETLEASE is 1024, also with more digits in front: the kernel reads 32 bits.
LEASE = """
open($f, "<", "/etc/passwd") or die;
print "lease ", (fcntl($f, 1024, 1) ? "taken" : $!+0), "\\n";
print "lease by a longer number ", (syscall(72, fileno($f), (1 << 32) + 1024, 1) < 0 ? $!+0 : "taken"), "\\n";
print "flags ", (fcntl($f, 3, 0) ? "read" : "lost"), ", copy ", (fcntl($f, 1030, 0) ? "made" : "lost"), "\\n";
"""


def test_nobody_in_a_container_lets_wait_who_opens_a_file_of_the_host(raw):
    """With IDs of its own root of a container passes for the owner of root's files, and owners may take leases."""
    printed = output(raw, {"Binds": ["/etc/passwd:/etc/passwd:ro"]}, f"exec perl -e '{LEASE}'")
    assert printed.splitlines() == ["lease 1", "lease by a longer number 1", "flags read, copy made"]


# Of no process, so nobody is traced: what the filter lets through fails with ESRCH (3), what it refuses with EPERM (1).
# By number 101, PTRACE_SEIZE, PTRACE_SETOPTIONS, PTRACE_OLDSETOPTIONS, each with PTRACE_O_TRACEEXIT; then all else.
EXITS = """
sub answer { syscall(101, $_[0], 4194304, 0, $_[1]) < 0 ? $!+0 : "done" }
print "exits ", join(" ", map { answer($_, 0x40), answer($_, 0x7f) } 0x4206, 0x4200, 21, (1 << 32) + 0x4200), "\n";
print "else ", join(" ", map { answer($_, 0x3f) } 0x4206, 0x4200, 21), " ";
print join(" ", map { answer($_, 0x40) } 1, 4, 7, 12, 17, 24, 0x4201, 0x4204, 0x4207, 0x420e), "\n";
"""


@pytest.mark.parametrize("entry", ["", '[strict]\nids = ["host"]'])
def test_no_process_in_a_container_stops_at_the_exit_of_another(raw, site, entry):
    """Two that do so to each other survive SIGKILL: nothing ends them, so no test lets any of them begin."""
    rules = site.directory / "etc/convgpu/rules.toml"
    before = rules.read_text()
    rules.write_text(before.replace("[strict]", entry or "[strict]"))
    try:
        printed = output(raw, {}, f"cat /proc/self/uid_map; exec perl -e '{EXITS}'").splitlines()
    finally:
        rules.write_text(before)
    assert (printed[0].split()[1] == "0") == bool(entry)
    assert printed[1:] == ["exits " + " ".join(["1"] * 8), "else " + " ".join(["3"] * 13)]


# On /dev/null, which knows none of them (ENOTTY, 25): NVIDIA's driver, twice, managed memory, DRM; then TCGETS,
# BLKGETSIZE64, FIGETBSZ (which a file has) and a request of KVM. What the filter refuses fails with EPERM (1).
REQUESTS = """
open($f, "<", "/dev/null") or die;
sub answer { syscall(16, fileno($f), $_[0], my $b = "x" x 128) < 0 ? $!+0 : "done" }
print join(" ", map { answer($_) } 0xc030462b, (1 << 32) + 0xc0104629, 0x30000001, 0xc018644b), "\\n";
print join(" ", map { answer($_) } 0x5401, 0x80081272, 2, 0xae01), "\\n";
"""


def test_a_container_without_a_gpu_calls_no_driver_by_a_descriptor_that_it_was_sent(raw):
    """Who has a GPU may send its open device nodes to others; by requests alone they could use it."""
    program = f"exec perl -e '{REQUESTS}'"
    found = {limit: output(raw, {}, program, *limit).splitlines() for limit in [(), ("CONVGPU_MEMORY=1g",)]}
    assert found == {(): ["1 1 1 1", "25 25 done 25"], ("CONVGPU_MEMORY=1g",): ["25 25 25 25", "25 25 done 25"]}


def test_what_the_engine_writes_for_a_container_it_cannot_write(raw):
    """The Engine reads these files whole; a sparse one of 4 GB took 20 GB of its memory."""
    host = {"ExtraHosts": ["elsewhere:192.0.2.7"]}
    names = ("hosts", "hostname", "resolv.conf")
    script = "; ".join(f"truncate -s 1G /etc/{name}; cat /etc/{name}" for name in names)
    said = output(raw, host, script)
    assert said.count("Read-only file system") == len(names), said
    assert "192.0.2.7\telsewhere" in said
