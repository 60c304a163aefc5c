"""Calls beside those that make containers, under strict rules on a real Engine: prepared programs, forms, floods."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import strict_site
from docker_engine import wait_for
from raw_engine import Call
from strict_run import API, body, run, texts

from convgpu.authz.ports import EngineUnreachable
from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.facts import EngineView

pytestmark = pytest.mark.engine

FORM = "application/x-www-form-urlencoded"
NOWHERE = "http://127.0.0.1:9/x.tar"  # a port on which nobody listens: who asks there, has passed


def prepare(raw, container):
    asked = {"Cmd": ["sh", "-c", "echo ran"], "AttachStdout": True}
    answer = raw.post(f"{API}/containers/{container}/exec", asked)
    assert answer.status == 201, answer
    return answer.json["Id"]


def test_nobody_pauses_a_container_and_everybody_ends_a_pause(raw, running):
    """Under cgroup v1 nothing ends what is paused."""
    paused, unpaused = (raw.post(f"{API}/containers/{running}/{action}") for action in ("pause", "unpause"))
    assert (paused.denied, b"calls = ['pause']" in paused.raw) == (True, True), paused
    assert (unpaused.denied, b"is not paused" in unpaused.raw) == (False, True), unpaused


def start(raw, program, **headers):
    return raw.send(Call("POST", f"{API}/exec/{program}/start", {"Detach": False}, headers))


def test_a_prepared_program_starts_for_who_prepared_it(raw, running):
    answer = start(raw, prepare(raw, running))
    assert (answer.status, texts(answer.raw)) == (200, "ran\n")


def test_a_program_that_was_prepared_before_the_rules_were_strict_does_not_start(raw, site, running):
    rules = site.directory / "etc/convgpu/rules.toml"
    rules.write_text('mode = "enforce"')
    try:
        before = prepare(raw, running)
    finally:
        rules.write_text(strict_site.RULES)
    site.configure({"authorization-plugins": []})
    unjudged = prepare(raw, running)
    site.configure({"authorization-plugins": ["convgpu"]})
    for program in (before, unjudged):
        answer = start(raw, program)
        assert (answer.denied, b"strict-exec" in answer.raw) == (True, True), answer


def test_no_driver_is_looked_up_by_a_path(raw, tmp_path):
    """The Engine would ask whoever listens there about every new volume, and copy into the folder that it names."""
    assert raw.post(f"{API}/volumes/create", {"Name": "exists"}).status == 201
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "evil.sock"))
        listener.listen()
        listener.setblocking(False)
        name = f"../../..{tmp_path}/evil"  # from /run/docker/plugins
        options = {"DriverConfig": {"Name": name}}
        mount = {"Type": "volume", "Source": "exists", "Target": "/x", "VolumeOptions": options}
        asked = [{"VolumeDriver": name, "Binds": ["exists:/x:nocopy"]}, {"VolumeDriver": name}, {"Mounts": [mount]}]
        answers = [raw.post(f"{API}/containers/create", body(host)) for host in asked]
        network = {"Name": "n", "IPAM": {"Driver": name, "Config": [{"Subnet": "10.98.0.0/24"}]}}
        answers.append(raw.post(f"{API}/networks/create", network))
        for answer in answers:
            assert (answer.denied, b"strict-drivers" in answer.raw) == (True, True), answer
        # Beside the HostConfig, from where Engines take it if that names none.
        for volume in ("exists", "new"):
            asked = body({"Binds": [f"{volume}:/x:nocopy"]}) | {"VolumeDriver": name}
            answer = raw.post(f"{API}/containers/create", asked)
            assert (answer.denied, b"strict-fields" in answer.raw) == (True, True), answer
        with pytest.raises(BlockingIOError):
            listener.accept()


FORMS = {
    "import": ("/images/create", f"fromSrc={NOWHERE}&repo=x"),
    "import over a pull": ("/images/create?fromImage=localhost:9/x", f"fromImage=&fromSrc={NOWHERE}&repo=x"),
    "build": ("/build", f"remote={NOWHERE}"),
    "build on the host's network": (f"/build?remote={NOWHERE}", "networkmode=host"),
    "build by BuildKit": (f"/build?remote={NOWHERE}", "version=2"),
    "load": ("/images/load", "quiet=1"),
    "commit": ("/commit?repo=x", "container=other"),
    "start": ("/containers/other/start", "checkpoint=x&checkpoint-dir=/tmp"),
    "tag": ("/images/convgpu/demo/tag", "repo=x/y"),
    "rename": ("/containers/other/rename", "name=x"),
}
# Of two headers the Engine reads the first, which here is "Content-Type", and shows the last.
SPELLINGS = {
    "plain": {"Content-Type": FORM},
    "in capitals": {"Content-Type": FORM.upper()},
    "with a parameter": {"Content-Type": f"{FORM}; charset=utf-8"},
    "in parts": {"Content-Type": "multipart/form-data; boundary=B"},
    "before JSON": {"Content-Type": FORM, "Content-type": "application/json"},
    "before text": {"Content-Type": FORM, "Content-type": "text/plain"},
    "before an archive": {"Content-Type": FORM, "Content-type": "application/x-tar"},
    "before nothing": {"Content-Type": FORM, "Content-type": ""},
    "behind JSON": {"Content-type": FORM},
}


@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
def test_no_form_says_what_authorization_does_not_see(raw, chunked):
    passed = []
    for spelling, headers in SPELLINGS.items():
        for name, (path, form) in FORMS.items():
            text = form.encode()
            if "parts" in spelling:
                pairs = (pair.split("=", 1) for pair in form.split("&"))
                parts = (
                    f'--B\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in pairs
                )
                text = ("".join(parts) + "--B--\r\n").encode()
            answer = raw.send(Call("POST", f"{API}{path}", text, headers, chunked))
            if not (answer.denied or answer.status in {400, 415}):
                passed.append((name, spelling, answer.status, answer.raw[:100]))
    assert passed == []


def slow_caller(path, seconds):
    """Send a call whose body comes a byte at a time, and never whole."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        head = f"POST {API}/containers/create HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 5000\r\n\r\n{{".encode())
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                connection.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            return


# What a flood is made of: each is refused, however many there are.
FLOOD = {
    "path": ("/containers/create", body({"Binds": ["/etc:/x"]})),
    "large": ("/containers/create", body({"Binds": ["/etc:/x"], "Comment": "x" * 900_000})),
    "withheld": ("/containers/create", body({"Binds": ["/etc:/x"], "Comment": "x" * 3_000_000})),
    "deep": ("/containers/create", b'{"HostConfig":' + b"[" * 100_000),
    "many": ("/containers/create", body({"Binds": [f"/etc:/x{number}" for number in range(5000)]})),
    "volumes": (
        "/containers/create",
        body({"Binds": ["/etc:/x", *(f"v{number}:/x{number}" for number in range(500))]}),
    ),
    "exec": ("/exec/nobody/start", {"Detach": True}),
    "plugins": ("/plugins/pull?remote=x", []),
}


def test_nothing_passes_in_a_flood_and_others_are_answered(raw):
    """Twelve callers at once, with slow ones beside them, and a caller with an innocent container."""
    passed, sent = [], 0

    def flood(number):
        nonlocal sent
        while not over.is_set():
            for name, (path, sent_body) in list(FLOOD.items())[number % 3 :]:
                answer = raw.send(Call("POST", API + path, sent_body))
                sent += 1
                if not answer.denied:
                    passed.append((name, answer.status, answer.raw[:200]))

    over = threading.Event()
    threads = [threading.Thread(target=flood, args=(number,)) for number in range(12)]
    threads += [threading.Thread(target=slow_caller, args=(raw.path, 5)) for _ in range(20)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    innocent = [run(raw, {"Binds": [f"{strict_site.DATA}:/data"]}) for _ in range(2)]
    took = time.monotonic() - begin
    over.set()
    for thread in threads:
        thread.join()
    assert (passed, innocent) == ([], [None, None])
    assert sent > 20
    assert took < 60
    assert run(raw, {"Binds": ["/etc:/x"]}) is not None


@pytest.fixture
def unread(site, raw):
    """A container of which a copy lies unread, so that the Engine answers nothing about it."""
    rules = site.directory / "etc/convgpu/rules.toml"
    before = rules.read_text()
    rules.write_text(before.replace('"commit"', '"commit", "cp"'))
    container = raw.post(f"{API}/containers/create", body({}, "sleep", "600")).json["Id"]
    with socket.socket(socket.AF_UNIX) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(f"{site.directory}/docker.sock")
        client.sendall(f"GET {API}/containers/{container}/archive?path=/usr HTTP/1.1\r\nHost: d\r\n\r\n".encode())
        assert b" 200 " in client.recv(64)
        yield container, client
    raw.remove(container)
    rules.write_text(before)


def test_a_stuck_container_is_listed_so_that_it_can_be_judged_for_using_a_gpu(site, unread):
    container, _ = unread
    view = EngineView(Engine(site.directory / "docker.sock", 3.0))
    with pytest.raises(EngineUnreachable):
        view.container(container)
    assert (view.listed(container)["Id"], view.is_task(container)) == (container, False)


def test_who_waits_for_a_stuck_container_leaves_judges_for_others(raw, unread):
    container, client = unread
    with ThreadPoolExecutor(150) as pool:
        starts = [pool.submit(raw.post, f"{API}/containers/{container[: 12 + n % 50]}/start") for n in range(150)]
        wait_for("some are refused", lambda: any(each.done() for each in starts))
        begun = time.monotonic()
        made = raw.post(f"{API}/containers/create", body({}))
        took = time.monotonic() - begun
        waiting = sum(not each.done() for each in starts)
        client.close()
    assert (made.status, waiting > 0, took < 5) == (201, True, True), (made, waiting, took)
    raw.remove(made.json["Id"])
