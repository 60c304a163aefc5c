"""A writable path of the strict list on a real Engine: it gives neither another folder of the host nor its root."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import strict_site
from docker_engine import wait_for
from raw_engine import Call
from strict_run import API, body, output, run_in, texts

pytestmark = pytest.mark.engine

ATTEMPTS = int(os.environ.get("CONVGPU_RACES", "40"))
# Exchanges two names without a pause, as fast as the kernel does it (renameat2 with RENAME_EXCHANGE).
FLIP = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
one, other, pause = sys.argv[1].encode(), sys.argv[2].encode(), float(sys.argv[3])
while True:
    libc.renameat2(-100, one, -100, other, 2)
    time.sleep(pause)
"""
EXCHANGE = 2


@pytest.fixture
def secret(tmp_path):
    """A folder of the host that no entry covers."""
    folder = tmp_path / "secret"
    folder.mkdir()
    (folder / "key").write_text("of the host")
    return folder


@pytest.fixture
def room(site):  # noqa: ARG001 - it makes the folder of the entry
    """A folder below a writable entry."""
    folder = Path(strict_site.DATA, "room")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=[0.0005, 0.02], ids=["fast", "slow"])
def flipping(request, room, secret):
    """A name below the entry that is a folder and a link to the secret in turns, as a user or a container makes it."""
    (room / "one").mkdir()
    (room / "other").symlink_to(secret)
    command = [sys.executable, "-c", FLIP, f"{room}/one", f"{room}/other", str(request.param)]
    process = subprocess.Popen(command)
    yield room / "one"
    process.kill()
    process.wait()


def bind(source, **more):
    return strict_site.mount("bind", str(source), **more)


def printed(raw, container):
    """Return what a container printed; its path is judged for that too, and refused while it is a link."""

    def shown():
        answer = raw.send(Call("GET", f"{API}/containers/{container}/logs?stdout=1&stderr=1"))
        return None if answer.denied else [texts(answer.raw)]

    return wait_for("its output is shown", shown)[0]


def test_no_swap_of_a_folder_while_it_is_mounted_gets_through(raw, flipping, secret):
    """Of ATTEMPTS starts, or more until one does, some run, with the folder; none sees what the link leads to."""
    script = "cat /x/key; touch /x/written; echo ran"
    seen, container = [], None
    for attempt in range(10 * ATTEMPTS):
        if seen and attempt >= ATTEMPTS:
            break
        if container is None:
            made = raw.post(f"{API}/containers/create", body(bind(flipping), "sh", "-c", script))
            container = made.json["Id"] if made.status == 201 else None
        if container is not None and raw.post(f"{API}/containers/{container}/start").status == 204:
            raw.post(f"{API}/containers/{container}/wait")
            seen.append(printed(raw, container))
            raw.remove(container)
            container = None
    if container is not None:
        raw.remove(container)
    assert seen
    assert [text for text in seen if "of the host" in text] == []
    assert sorted(path.name for path in secret.iterdir()) == ["key"]


def test_what_is_mounted_is_what_was_opened_before_the_swap(raw, room):
    """A container keeps its folder when the name is given to another one afterwards."""
    (room / "one").mkdir()
    (room / "one/mine").touch()
    (room / "other").mkdir()
    made = raw.post(f"{API}/containers/create", body(bind(f"{room}/one"), "sleep", "600")).json["Id"]
    assert raw.post(f"{API}/containers/{made}/start").status == 204
    ctypes.CDLL(None).renameat2(-100, f"{room}/one".encode(), -100, f"{room}/other".encode(), EXCHANGE)
    try:
        assert run_in(raw, made, "ls /x") == "mine\n"
    finally:
        raw.remove(made)


def perl(program):
    """Return a command; `syscall` writes through its texts, so they are variables."""
    names = '$n = "a"; $d = "."; $s = "security.capability"'
    return f"perl -e '{names}; {program}'"


# Each leaves a file in the folder in which it runs, with which a user of the host would become root.
LEAVINGS = {
    "chmod u+s": "cp /bin/sh a; chmod 4755 a",
    "chmod g+s": "cp /bin/sh a; chmod 2755 a",
    "install": "install -m 6755 /bin/sh a",
    "copy with its mode": "cp -p /usr/bin/passwd /bin/su .",
    "open": perl("sysopen(F, $n, 0101, 06755)"),
    "openat": perl("syscall(257, -100, $n, 0101, 06755)"),
    "openat without a name": perl(
        '$f = syscall(257, -100, $d, 020200001, 04755); $p = "/proc/self/fd/$f"; '
        "syscall(265, -100, $p, -100, $n, 0x400)"
    ),
    "creat": perl("syscall(85, $n, 06755)"),
    "openat2": perl('$h = pack("QQQ", 0101, 06755, 0); syscall(437, -100, $n, $h, 24)'),
    "fchmodat": "touch a; " + perl("syscall(268, -100, $n, 04755)"),
    "fchmodat2": "touch a; " + perl("syscall(452, -100, $n, 04755, 0)"),
    "fchmod": "touch a; " + perl("open(F, $n); syscall(91, fileno(F), 02755)"),
    "mknod of a file": perl("syscall(133, $n, 0104755, 0)"),
    "mknodat": perl("syscall(259, -100, $n, 0102755, 0)"),
    "block device": "mknod a b 254 0",
    "character device": "mknod a c 1 1",
    "file capability": "cp /bin/sh a; "
    + perl('$c = pack("V6", 0x02000001, 0x400, 0, 0, 0, 0); syscall(188, $n, $s, $c, 20, 0)'),
}


def dangerous(folder):
    """Return the names of the leavings that left something."""
    found = []
    for path in folder.glob("*/*"):
        mode = path.lstat().st_mode
        special = stat.S_ISBLK(mode) or stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and mode & 0o6000)
        if special or "security.capability" in os.listxattr(path, follow_symlinks=False):
            found.append(path.parent.name)
    return sorted(found)


def test_nothing_that_makes_a_user_of_the_host_root_is_left_in_a_writable_path(raw, room):
    """In the first program and by `docker exec`."""
    # Some of these end with the shell that runs them: each has one of its own, and a folder.
    parts = [f"mkdir -p '/x/{name}'; cd '/x/{name}'; ({leaving}); cd /" for name, leaving in LEAVINGS.items()]
    script = "\n".join(parts)
    made = raw.post(
        f"{API}/containers/create",
        body(bind(room), "sh", "-c", f"{script}\ntouch /x/done\nsleep 600"),
    ).json["Id"]
    try:
        assert raw.post(f"{API}/containers/{made}/start").status == 204
        wait_for("the program is done", (room / "done").exists)
        assert dangerous(room) == []
        run_in(raw, made, f"rm -rf /x/*\n{script}")
        assert len(list(room.iterdir())) >= len(LEAVINGS)
        assert dangerous(room) == []
    finally:
        raw.remove(made)


# Gives the file of a user, setgid and not to be executed by its group, another group (syscall 116: setgroups) and, by
# an ACL (188: setxattr), its group the right to execute it: neither takes the bit away.
ANOTHER_GROUP = """
$n = "/x/own"; $g = pack("LL", 4242, 0); $s = "system.posix_acl_access";
$a = pack("VvvVvvVvvV", 2, 1, 7, 0xffffffff, 4, 5, 0xffffffff, 0x20, 5, 0xffffffff);
print syscall(116, 2, $g) == 0 && chown(-1, 0, $n) ? "its group is root\n" : "failed: $!\n";
print syscall(188, $n, $s, $a, 28, 0) == 0 ? "it has an ACL\n" : "no ACL: $!\n";
"""


def test_no_acl_makes_a_users_setgid_file_one_of_roots_group(raw, room):
    own = room / "own"
    own.touch()
    os.chown(own, 4242, 4242)
    own.chmod(0o2644)
    assert output(raw, bind(room), f"perl -e '{ANOTHER_GROUP}'") == (
        "its group is root\nno ACL: Operation not supported\n"
    )
    assert (own.stat().st_gid, oct(own.stat().st_mode)) == (0, "0o102644")


def test_a_path_that_the_host_does_not_mount_nosuid_is_not_writable(raw, room):
    """There a user of the host could be left a setgid program, whatever the container may not do."""
    below = room / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", below], check=True)
    try:
        for folder in (below, room):
            assert "strict-accept: " in output(raw, bind(folder), "echo runs")
        assert output(raw, bind(below, ReadOnly=True), "echo runs") == "runs\n"
        subprocess.run(["mount", "-o", "remount,nosuid", below], check=True)
        assert output(raw, bind(below), "echo runs") == "runs\n"
    finally:
        subprocess.run(["umount", below], check=True)


def test_without_a_filter_of_system_calls_no_path_is_writable(site, raw, room):
    rules = site.directory / "etc/convgpu/rules.toml"
    before = rules.read_text()
    rules.write_text(before.replace("[strict]", '[strict]\nsecurity = ["seccomp=unconfined"]'))
    host = {"SecurityOpt": ["seccomp=unconfined"]}
    try:
        assert "strict-security: " in output(raw, host | bind(room), "echo runs")
        assert output(raw, host | bind(room, ReadOnly=True), "echo runs") == "runs\n"
    finally:
        rules.write_text(before)


def test_a_writable_path_is_of_use(raw, room):
    (room / "old").mkdir()
    script = (
        "cd /x && echo a > new && chmod 640 new && chown 1000:1000 new && mkdir -p deep/er && ln -s new link && "
        "cp -r /etc/apt copy && mv new newer && touch old/a && rm -r copy && tar -cf t.tar deep && tar -xf t.tar && "
        "perl -e 'open(F, q(>q)) or die' && grep ' /x ' /proc/self/mountinfo && echo fine"
    )
    shown = output(raw, bind(room), script)
    assert shown.endswith("fine\n"), shown
    assert "rw,nosuid,nodev" in shown
    assert (room / "newer").stat().st_uid == 1000


def test_a_path_is_mounted_as_a_file_and_read_only_and_with_what_lies_below(raw, room):
    (room / "file").write_text("content")
    asked = (bind(f"{room}/file", Target="/one"), bind(room, Target="/all", ReadOnly=True))
    host = {"Mounts": [row for each in asked for row in each["Mounts"]], "Binds": [f"{strict_site.TOOLS}:/tools:ro"]}
    shown = output(raw, host, "cat /one /all/file; echo x > /one; touch /all/y /tools/y; ls /tools")
    assert shown.startswith("contentcontent")
    assert shown.count("Read-only file system") == 2
    assert (room / "file").read_text() == "x\n"
    assert shown.endswith("bin\n")


def test_nothing_of_ours_stays_mounted_on_the_host(raw, room):
    assert output(raw, bind(room), "echo fine") == "fine\n"
    assert "convgpu-mounts" not in Path("/proc/self/mountinfo").read_text()


def test_a_copy_into_a_container_writes_no_path_of_the_host(raw, room):
    made = raw.post(f"{API}/containers/create", body(bind(room, Target="/tmp"))).json["Id"]
    answer = raw.send(Call("PUT", f"{API}/containers/{made}/archive?path=/tmp", b"\0" * 1024))
    raw.remove(made)
    assert (answer.denied, b"strict-calls" in answer.raw) == (True, True), answer


# What the Engine would make as root, by names that a user exchanges meanwhile, and the folder in which it would.
MADE = {
    "bind": lambda room: {"Binds": [f"{room}/new:/x"]},
    "read-only": lambda room: {"Binds": [f"{room}/new:/x:ro"]},
    "deeper": lambda room: {"Binds": [f"{room}/new/d/d/d:/x"]},
    "mount": lambda room: bind(f"{room}/new", BindOptions={"CreateMountpoint": True}),
}


@pytest.mark.parametrize("name", MADE)
def test_the_engine_makes_no_folder_where_users_write(raw, site, room, name):
    """It made `new`, and set mode and owner of what it then found there: a link to any folder or file of root's."""
    host = MADE[name](room)
    made = raw.post(f"{API}/containers/create", body(host))
    assert (made.denied, b"strict-paths: the Engine would make " in made.raw) == (True, True), made
    # Of a container that was made before the rules.
    site.configure({"authorization-plugins": []})
    made = raw.post(f"{API}/containers/create", body(host))
    site.configure({"authorization-plugins": ["convgpu"]})
    if made.status == 400:
        return  # before API 1.42 no mount asks for it
    started = raw.post(f"{API}/containers/{made.json['Id']}/start")
    made_nothing = list(room.iterdir()) == []
    site.configure({"authorization-plugins": []})
    unasked = raw.post(f"{API}/containers/{made.json['Id']}/start")
    site.configure({"authorization-plugins": ["convgpu"]})
    raw.remove(made.json["Id"])
    assert (started.denied, made_nothing) == (True, True), started
    # Nobody is asked of a restart policy: the runtime lets none start that it could start again.
    assert (unasked.status, b"strict-paths: the Engine would make " in unasked.raw) == (500, True), unasked


def test_the_engine_makes_no_folder_below_a_read_only_entry(raw):
    """Nor for a container that was made while it was there."""
    new = Path(strict_site.TOOLS, "new")
    new.mkdir()
    container = raw.post(f"{API}/containers/create", body({"Binds": [f"{new}:/x:ro"]})).json["Id"]
    new.rmdir()
    answers = [
        raw.post(f"{API}/containers/create", body({"Binds": [f"{new}:/x:ro"]})),
        raw.post(f"{API}/containers/create", body({"Binds": [f"{new}/d/d:/x:ro"]})),
        raw.post(f"{API}/containers/{container}/start"),
    ]
    assert [(each.denied, b"is not there" in each.raw, new.exists()) for each in answers] == [(True, True, False)] * 3
    new.mkdir()
    assert raw.post(f"{API}/containers/{container}/start").status == 204
    second = raw.post(f"{API}/containers/create", body({"VolumesFrom": [container]})).json["Id"]
    new.rmdir()
    started = raw.post(f"{API}/containers/{second}/start")
    assert (started.denied, new.exists()) == (True, False), started
    for each in (second, container):
        raw.remove(each)


# What this Engine accepts, so that a spelling that it learns is seen here.
MODES = ("z", "Z", "ro,z", "Z,ro", "rw,Z,rslave", "z,consistent", "shared,z")
TOP = strict_site.DATA
NO_MODES = ("ZZ", "z,Z", " z", "relabel=shared", "zz")


def test_all_modes_of_a_mount_that_set_labels(site, raw):
    asked = [{"Binds": [f"{TOP}:/x:{mode}"]} for mode in MODES]
    asked += [{"Binds": [f"cache:/x:{mode},nocopy"]} for mode in ("z", "Z")]
    answers = [raw.post(f"{API}/containers/create", body(each)) for each in asked]
    told = [(each.denied, b"strict-fields" in each.raw) for each in answers]
    site.configure({"authorization-plugins": []})
    made = [raw.post(f"{API}/containers/create", body(each)) for each in asked]
    odd = [raw.post(f"{API}/containers/create", body({"Binds": [f"{TOP}:/x:{mode}"]})) for mode in NO_MODES]
    site.configure({"authorization-plugins": ["convgpu"]})
    starts = [raw.post(f"{API}/containers/{each.json['Id']}/start").denied for each in made]
    for each in made:
        raw.remove(each.json["Id"])
    assert (told, starts) == ([(True, True)] * len(asked), [True] * len(asked))
    assert [each.status >= 400 for each in odd] == [True] * len(NO_MODES)


def test_the_engine_makes_no_folder_of_volumes_from(raw, room):
    """Of another container's mounts it makes those, too, which it does not make for that one."""
    (room / "new").mkdir()
    first = raw.post(f"{API}/containers/create", body(bind(f"{room}/new"))).json["Id"]
    second = raw.post(f"{API}/containers/create", body({"VolumesFrom": [first]})).json["Id"]
    (room / "new").rmdir()
    started = raw.post(f"{API}/containers/{second}/start")
    for container in (second, first):
        raw.remove(container)
    assert (started.denied, list(room.iterdir())) == (True, []), started


def test_no_answer_tells_whether_a_path_of_roots_is_there(raw, secret):
    (secret / "link").symlink_to("/var/log/secret-target")
    names = ("key", "link", "missing", "key/below")
    for form in ("{}", "{}/../../../../../../../.." + strict_site.TOOLS):
        answers = {name: raw.post(f"{API}/containers/create", body(bind(form.format(secret / name)))) for name in names}
        told = {answer.json["message"].replace(name, "NAME") for name, answer in answers.items()}
        assert (len(told), all(answer.denied for answer in answers.values())) == (1, True), told
