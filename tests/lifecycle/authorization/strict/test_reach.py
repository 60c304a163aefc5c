"""Calls that reach further than they seem, under strict rules on a real Engine."""

import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from docker_engine import wait_for
from engine_endpoints import ENDPOINTS
from raw_engine import Call
from strict_run import API, body, copies, logs, output

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


# Links in the container, and names in an archive that lead through them.
LINKS = {"etc": "/etc", "root": "/proc/1/root", "up": "../.."}
NAMES = ("root/etc/new", "up/etc/new", "../etc/new", "/etc/new", "etc/new")


def archive(*names, **links):
    """Return a tar with setuid files, and with links."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name, target in [*dict.fromkeys(names).items(), *links.items()]:
            member = tarfile.TarInfo(name)
            member.size, member.mode = (0 if target else 4), 0o4755
            member.type, member.linkname = (tarfile.SYMTYPE if target else tarfile.REGTYPE), target or ""
            tar.addfile(member, None if target else io.BytesIO(b"evil"))
    return text.getvalue()


@pytest.fixture(params=["created", "running", "ended"])
def linked(request, raw):
    """A container full of links, for which the Engine mounts nothing: for others it takes no archive."""
    container = raw.post(f"{API}/containers/create", body({}, "sleep", "600")).json["Id"]
    if request.param != "created":
        assert raw.post(f"{API}/containers/{container}/start").status == 204
    if request.param == "ended":
        raw.post(f"{API}/containers/{container}/kill")
    yield container
    raw.remove(container)


def put(raw, container, content):
    return raw.send(Call("PUT", f"{API}/containers/{container}/archive?path=/tmp", content))


def test_links_met_in_an_archive_lead_out_of_no_container(raw, linked):
    put(raw, linked, archive(**LINKS))
    answers = {name: put(raw, linked, archive(name)).status for name in NAMES}
    assert not Path("/etc/new").exists(), answers


def test_what_an_archive_is_taken_from_is_the_containers_own(raw, linked):
    put(raw, linked, archive(**LINKS))
    Path("/etc/of-the-host").write_text("x")
    try:
        for path in ("/tmp/etc/of-the-host", "/tmp/root/etc/of-the-host", "/tmp/up/etc/of-the-host"):
            for method in ("HEAD", "GET"):
                answer = raw.send(Call(method, f"{API}/containers/{linked}/archive?path={path}"))
                assert answer.status == (404 if copies(raw) else 403), (method, path, answer)
    finally:
        Path("/etc/of-the-host").unlink()


def test_a_container_without_a_path_of_the_host_takes_archives(raw):
    container = raw.post(f"{API}/containers/create", body({})).json["Id"]
    sent = put(raw, container, archive("a/b"))
    got = raw.send(Call("GET", f"{API}/containers/{container}/archive?path=/tmp/a/b"))
    raw.remove(container)
    assert (sent.status, got.status, b"evil" in got.raw) == ((200, 200, True) if copies(raw) else (403, 403, False))
    assert output(raw, {}, "echo fine") == "fine\n"
