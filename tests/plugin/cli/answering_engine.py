"""For tests of the quick paths: an Engine that answers questions, and what becomes of a process that becomes docker."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

ROOT = Path(__file__).parents[3]


class Server(ThreadingMixIn, UnixStreamServer):
    """Answers GET with `documents`, and keeps what is `asked`; what is asked for by DELETE is `deleted`."""

    daemon_threads = True

    def __init__(self, path: Path, documents: Mapping[str, object]) -> None:
        super().__init__(str(path), Answers)
        self.documents = documents
        self.asked: list[str] = []
        self.deleted: list[str] = []
        self.says = "a proxy"  # in its header Server

    def get_request(self) -> tuple[Any, Any]:
        return self.socket.accept()[0], ("engine", 0)


class Answers(BaseHTTPRequestHandler):
    """An Engine that answers questions."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.documents.get(self.path)
        body = json.dumps(found if found is not None else {"message": "absent"}).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.path)
        self.send_response(204)
        self.end_headers()

    def version_string(self) -> str:
        return self.server.says

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering_engine(path: Path, documents: Mapping[str, object]) -> Iterator[Server]:
    """Let an Engine answer on a socket."""
    with Server(path, documents) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Became(BaseException):
    """The process became docker."""


def become(_program: str, words: list[str]) -> None:
    """Stand in for os.execvp."""
    raise Became(words)


PROBE = """
import os, sys
sys.path[:0] = sys.argv.pop(1).split(":")

def become(_, words):
    os.write(1, "\\n".join([words[-1], *sys.modules]).encode())
    os._exit(0)

os.execvp = become
from convgpu.cli.entry import start
start()
"""
DEAR = {
    *(
        "ast",
        "click",
        "collections",
        "contextlib",
        "csv",
        "dataclasses",
        "enum",
        "functools",
        "http",
        "inspect",
        "json",
    ),
    *(
        "msgspec",
        "pathlib",
        "re",
        "selectors",
        "shlex",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "typing",
        "urllib",
    ),
}
"""Modules that take long to import, some of them because they import `re`."""


def become_in_a_process(words: list[str], variables: Mapping[str, str]) -> list[str]:
    """Start `convgpu`; return the last word that docker gets, and the modules that are imported by then."""
    sources = f"{ROOT}/plugin:{ROOT}/scheduler"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROBE, sources, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **variables},
        timeout=60,
    )
    return done.stdout.splitlines()
