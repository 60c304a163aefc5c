"""Questions about one container, volume or image, to an Engine that may never answer about it."""

import contextlib
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from daemon import wait_until

from convgpu.authz.ports import EngineHolds, EngineUnreachable, HostFacts
from convgpu.plugin.engine.client import Engine
from convgpu.plugin.engine.facts import EngineView
from convgpu.plugin.engine.waiting import PLACES

STUCK = "/containers/stuck"
ANSWERS = {
    "/containers/web/json": (200, {"Id": "w"}),
    "/volumes/a%20b": (200, {"Name": "a b"}),
    "/images/x/y:z/json": (200, {"Id": "i"}),
    "/services/s": (503, {"message": "no swarm"}),
    "/exec/e/json": (200, []),
}


class SilentEngine(threading.Thread):
    """Answers from a table, but nothing about containers that are called `stuck`."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(1024)
        self.held = []

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                words = connection.recv(4096).decode().split(" ")
                path = words[1] if len(words) > 1 else STUCK  # whose caller is gone
                if path.startswith(STUCK):
                    self.held.append(connection)
                else:
                    _answer(connection, *ANSWERS.get(path, (404, {"message": "no such thing"})))

    def release(self):
        """Answer what was left without an answer."""
        for connection in self.held:
            with contextlib.suppress(OSError):
                _answer(connection, 404, {})
            connection.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def _answer(connection, status, document):
    body = json.dumps(document).encode()
    connection.sendall(b"HTTP/1.1 %d .\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
    connection.close()


@pytest.fixture
def engine(tmp_path):
    engine = SilentEngine(tmp_path / "docker.sock")
    engine.start()
    yield engine
    engine.release()
    engine.close()


@pytest.fixture
def view(tmp_path):
    return EngineView(Engine(tmp_path / "docker.sock", timeout=60))


def test_sixty_held_containers_with_ten_calls_each_delay_nobody(view, engine):
    """All their calls come first, and the others pass through the same threads, as many as a worker has."""
    refused = []

    def ask(number):
        try:
            return view.container(f"stuck{number % 60}")
        except EngineHolds as error:
            refused.append(str(error))

    with ThreadPoolExecutor(PLACES + 32) as pool:
        calls = [pool.submit(ask, number) for number in range(600)]
        wait_until(lambda: bool(refused), "the answers are late")
        took = []
        for _ in range(20):
            begun = time.monotonic()
            assert pool.submit(view.container, "web").result(60) == {"Id": "w"}
            took.append(time.monotonic() - begun)
        waiting = sum(not call.done() for call in calls)
        engine.release()
        wait_until(lambda: all(call.done() for call in calls), "all have an answer")
    assert (max(took) < 1, waiting > 0) == (True, True), (took, waiting)
    assert re.fullmatch(r"the Engine has not answered about container stuck\d+ for \d s", refused[0])


@pytest.mark.usefixtures("engine")
def test_answers_about_one_thing(view):
    found = (view.container("/web"), view.container("nobody"), view.volume("a b"), view.image("x/y:z"))
    assert found == ({"Id": "w"}, None, {"Name": "a b"}, {"Id": "i"})
    # Nothing of the Engine's is called so; as an address it would be another one.
    assert [view.container(name) for name in ("../images/x", "..", ".", "", "a//b")] == [None] * 5
    with pytest.raises(EngineUnreachable, match="refused: no swarm"):
        view.service("s")
    with pytest.raises(EngineUnreachable, match="the Engine's answer about program e is none"):
        view.prepared("e")


def test_no_answer_in_time_and_no_engine(tmp_path, engine):
    view = EngineView(Engine(tmp_path / "docker.sock", timeout=0.2))
    with pytest.raises(EngineHolds, match="about container stuck for 1 s"):
        view.container("stuck")
    engine.close()
    with pytest.raises(EngineUnreachable, match="no Engine answers at ") as raised:
        view.container("web")
    assert raised.type is EngineUnreachable


@pytest.mark.usefixtures("engine")
def test_a_question_may_have_less_time_than_others(view):
    """That of the view is a minute."""
    assert (view.container_within("web", 0.2), view.container_within("nobody", 0.2)) == ({"Id": "w"}, None)
    begun = time.monotonic()
    with pytest.raises(EngineHolds, match="about container stuck for 1 s"):
        view.container_within("stuck", 0.2)
    assert time.monotonic() - begun < 20


class SlowSettings:
    """An Engine that tells its settings once it is released."""

    def __init__(self):
        self.asked, self.released = threading.Event(), threading.Event()

    def ask(self, _question):
        self.asked.set()
        self.released.wait(60)
        return {"ServerVersion": "28.0.0"}


def test_one_caller_asks_for_the_settings_and_others_have_those_of_before():
    engine = SlowSettings()
    view = EngineView(engine)
    before = HostFacts()
    view._facts = time.monotonic() - 11, before
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(view.facts)
        engine.asked.wait(60)
        assert view.facts() is before
        engine.released.set()
        now = first.result(60)
    assert (now is not before, view.facts() is now) == (True, True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aa01", "aa01"),
        ("web", "aa01"),
        ("/web", "aa01"),
        ("aa02", "aa02"),
        ("bb", "bb03"),  # a name comes before the beginning of an id
        ("cc", "cc04"),
        ("aa", None),
        ("", None),
        ("nobody", None),
    ],
)
def test_the_list_tells_the_id_of_a_container_that_the_engine_holds(name, found):
    names = {"aa01": ["/web"], "aa02": ["/aa01", "/other/alias"], "bb03": ["/bb"], "bb05": ["/x"], "cc04": None}
    rows = [{"Id": own, "Names": called} for own, called in names.items()]
    api = SimpleNamespace(containers=lambda **_how: rows)
    assert EngineView(SimpleNamespace(ask=lambda question: question(api))).id_of(name) == found
