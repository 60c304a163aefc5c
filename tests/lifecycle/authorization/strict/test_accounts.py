"""Who has an account on the host, and containers under strict rules: neither gets the host's root by the other."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import strict_site
from daemon import ended_with_test
from docker_engine import wait_for
from raw_engine import Call
from strict_run import API, body, logs, output, run_in

from convgpu.runtime.strict.user_ids import FIRST, WRITERS

pytestmark = pytest.mark.engine

ACCOUNT = 54321
# A program of the user's, which gives whoever connects a descriptor of the host's root.
GIVER = """
import os, socket, sys
os.setgroups([]), os.setgid(54321), os.setuid(54321)  # Python may lie where users cannot read
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1].replace("@", chr(0)))
listener.listen()
if sys.argv[1][0] == "/":
    os.chmod(sys.argv[1], 0o777)
print("ready", flush=True)
while True:
    peer, _ = listener.accept()
    socket.send_fds(peer, [b"x"], [os.open("/", os.O_RDONLY)])
"""
# Takes it (recvmsg is 47) and tries what root of the host could: openat 257, fchmodat 268, fchownat 260, fchdir 81.
TAKER = r"""
use Socket;
my ($at, $key) = @ARGV; my ($place, $deep) = ($at, $key); $place =~ s/^@/\0/; $deep =~ s/^\///;
socket(my $s, AF_UNIX, SOCK_STREAM, 0); connect($s, pack("Sa*", 1, $place)) or print "no socket: $!\n";
my ($b, $c) = ("x" x 16, "\0" x 64);
my $v = pack("PQ", $b, 16); my $m = pack("QQPQPQQ", 0, 0, $v, 1, $c, 64, 0);
my $got = syscall(47, fileno($s), $m, 0); my $d = unpack("l", substr($c, 16, 4));
print "got $got descriptor $d\n";
my $f = syscall(257, $d, $deep, 0); my $t = "$!"; sysread($h, $t, 99) if $f >= 0 && open(our $h, "<&=$f");
print "read: $t\n";
my $new = "$deep.new";
print "create: ", syscall(257, $d, $new, 0101, 0644) >= 0 ? "done" : $!, "\n";
print "chmod: ", syscall(268, $d, $deep, 0777) == 0 ? "done" : $!, "\n";
print "chown: ", syscall(260, $d, $deep, 54321, 54321, 0) == 0 ? "done" : $!, "\n";
syscall(81, $d); print "from there: ", chmod(0777, $deep) ? "done" : $!, "\n";
"""


@pytest.fixture
def key(site):
    """A file of root's."""
    site.directory.chmod(0o711)  # as the folders above files of root's are
    file = site.directory / "key"
    file.write_text("of the host")
    file.chmod(0o600)
    yield file
    file.unlink()


@pytest.fixture
def room(site):  # noqa: ARG001 - it makes the folder of the entry
    folder = Path(strict_site.DATA, "users")
    folder.mkdir()
    os.chown(folder, ACCOUNT, ACCOUNT)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(params=["{room}/socket", "@convgpu-{pid}"], ids=["in a mounted path", "of the host's network"])
def giver(request, room):
    """The socket of a user's program, as container and host name it."""
    place = request.param.format(room=room, pid=os.getpid())
    command = [sys.executable, "-Ic", GIVER, place]
    with ended_with_test(subprocess.Popen(command, stdout=subprocess.PIPE)) as process:
        assert process.stdout.readline() == b"ready\n"
        yield place


def test_a_descriptor_that_a_user_hands_over_gives_root_nothing_of_the_host(raw, room, giver, key):
    """Over a socket in a mounted path, or one of a network that both have."""
    (room / "taker").write_text(TAKER)
    host = {**strict_site.mount("bind", str(room), Target=str(room)), "NetworkMode": "host"}
    shown = output(raw, host, f"perl {room}/taker {giver} {key}")
    assert "got 1 descriptor" in shown, shown
    assert "of the host" not in shown, shown
    assert "done" not in shown, shown
    assert [each.name for each in key.parent.glob("key*")] == ["key"]
    assert (key.stat().st_mode & 0o777, key.stat().st_uid, key.read_text()) == (0o600, 0, "of the host")


PROWLER = """
import os, sys
os.setgroups([]), os.setgid(54321), os.setuid(54321)
for name in ("root/etc", "cwd", "fd"):
    try:
        print(name, os.listdir(f"/proc/{sys.argv[1]}/{name}"))
    except PermissionError:
        print(name, "denied")
"""


def test_a_user_reaches_no_container_by_a_process_with_the_users_id(raw):
    """There could be a socket in it, or a device node of its image."""
    asked = body({}, "sh", "-c", "grep ' / / ' /proc/self/mountinfo; exec sleep 600") | {"User": str(ACCOUNT)}
    container = raw.post(f"{API}/containers/create", asked).json["Id"]
    try:
        assert raw.post(f"{API}/containers/{container}/start").status == 204
        wait_for("it runs", lambda: "overlay" in logs(raw, container))
        assert "nodev" in logs(raw, container)
        pid = raw.send(Call("GET", f"{API}/containers/{container}/json")).json["State"]["Pid"]
        done = subprocess.run([sys.executable, "-Ic", PROWLER, str(pid)], capture_output=True, text=True, check=True)
        assert done.stdout == "root/etc denied\ncwd denied\nfd denied\n"
    finally:
        raw.remove(container)


# Of each field what the sample site permits, and what could make the runtime choose other IDs.
FIELDS = {
    "User": ["0", "1073741824", "100500:100501", "65535:65536", "2147483647"],
    "GroupAdd": [["1073741824"], [str(number) for number in range(70000, 70100)]],
    "NetworkMode": ["host", "none"],
    "IpcMode": ["private", "shareable", "none"],
    "CgroupnsMode": ["private"],
    "Tmpfs": [{"/x": "uid=0,dev,suid,exec"}, {"/usr/share": ""}, {"/etc": "size=1m"}],
    "Binds": [[f"{strict_site.DATA}:/sys"], [f"{strict_site.DATA}:/dev/shm"], ["vol:/y:nocopy", "vol:/y/z:nocopy"]],
    "Sysctls": [{"net.core.somaxconn": "511"}],
    "ReadonlyRootfs": [True],
    "Init": [True],
    "CapDrop": [["ALL"]],
}
STARTS = int(os.environ.get("CONVGPU_STARTS", "6"))


def requests(count, seed=1):
    """Return requests with some fields, drawn at random."""
    draw = random.Random(seed)  # noqa: S311 - of attempts
    for _ in range(count):
        host = {name: draw.choice(FIELDS[name]) for name in draw.sample(sorted(FIELDS), draw.choice((1, 2, 4)))}
        user = host.pop("User", "")
        if host.get("NetworkMode") == "host":
            host.pop("Sysctls", None)
        yield host, {"User": user}


def test_whatever_is_asked_for_a_container_has_ids_of_its_own(raw):
    """`CONVGPU_STARTS` for more of them."""
    asked = list(requests(STARTS))
    tables = [output_of(raw, more, "cat /proc/self/uid_map", host).split() for host, more in asked]
    found = [(each, table) for each, table in zip(asked, tables, strict=True) if int(table[1]) < FIRST]
    assert (found, len(tables)) == ([], STARTS)


# What images and users expect of IDs: the request, and what the program prints.
EXPECTED = {
    "pipes": ({"User": "1000"}, "echo hi > /dev/stdout", "hi\n"),
    "a high ID": ({"User": "100500:100501"}, "touch /tmp/x; stat -c '%u %g' /tmp/x", "100500 100501\n"),
    "root": (
        {},
        "stat -c %u /etc/shadow /; touch /etc/x; mkdir /new; chown 33 /etc/x; stat -c %u /etc/x",
        "0\n0\n33\n",
    ),
}


def test_users_and_files_are_in_a_container_as_images_have_them(raw):
    shown = {name: output_of(raw, *each[:2]) for name, each in EXPECTED.items()}
    assert shown == {name: each[2] for name, each in EXPECTED.items()}


def output_of(raw, more, script, host=()):
    asked = body(dict(host), "sh", "-c", f"({script}) 2>&1") | more
    container = raw.post(f"{API}/containers/create", asked).json["Id"]
    try:
        assert raw.post(f"{API}/containers/{container}/start").status == 204
        raw.post(f"{API}/containers/{container}/wait")
        return logs(raw, container)
    finally:
        raw.remove(container)


def test_who_writes_a_path_gets_no_ids_of_one_that_may_make_setuid_files(raw, room):
    """IDs come again. A setuid file of one container's root, left on the host, is never of another's that writes."""
    script = "cut -c 11-21 /proc/self/uid_map; touch /tmp/x; chmod 4755 /tmp/x && echo made"
    hosts = ({}, strict_site.mount("bind", str(room), ReadOnly=True), strict_site.mount("bind", str(room)))
    shown = [output(raw, host, script) for host in hosts]
    firsts = [int(each.split()[0]) for each in shown]
    assert [each >= WRITERS for each in firsts] == [False, False, True]
    assert [each.endswith("made\n") for each in shown] == [True, True, False]


def test_a_program_of_docker_exec_starts_in_the_hosts_network(raw):
    made = raw.post(f"{API}/containers/create", body({"NetworkMode": "host"}, "sleep", "600")).json["Id"]
    try:
        assert raw.post(f"{API}/containers/{made}/start").status == 204
        assert run_in(raw, made, "echo here") == "here\n"
    finally:
        raw.remove(made)
