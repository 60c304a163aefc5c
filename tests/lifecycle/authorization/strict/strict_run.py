"""Engines whose plugin and runtime read one file of rules, and containers on them by the raw API."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from docker_engine import Engine
from raw_engine import Call, RawEngine

API = "/v1.41"
PROGRAM = str(Path(sys.executable).with_name("convgpu-runtime"))


@contextmanager
def ruled_engine(
    start: Callable[..., AbstractContextManager[Engine]], text: str, others: Mapping[str, Any] | None = None
) -> Iterator[Engine]:
    """Start an Engine under these rules, with our runtime as its default, and maybe `others`."""
    with start() as engine:
        rules = engine.directory / "etc/convgpu/rules.toml"
        rules.parent.mkdir(parents=True)
        rules.write_text(text)
        engine("plugin", "set", "convgpu", *engine.settings_of_plugins(), f"etc.source={engine.directory}/etc")
        engine("plugin", "enable", "convgpu")
        words = [f"--convgpu-directory={engine.directory_of('convgpu')}", f"--convgpu-rules={rules}"]
        runtimes = {**(others or {}), "convgpu": {"path": PROGRAM, "runtimeArgs": words}}
        engine.configure({"runtimes": runtimes, "default-runtime": "convgpu"})
        engine.configure({"authorization-plugins": ["convgpu"]})
        yield engine
        engine.configure({"authorization-plugins": []})


def body(host: dict[str, Any], *command: str) -> dict[str, Any]:
    return {"Image": "convgpu/demo", "Cmd": list(command) or ["true"], "HostConfig": {"NetworkMode": "none", **host}}


def run(raw: RawEngine, host: dict[str, Any], *, starts: bool = True) -> str | None:
    """Create and start a container; return the refusal, or none if it was not refused."""
    created = raw.post("/v1.41/containers/create", body(host))
    if created.status != 201:
        return created.raw.decode()
    container = created.json["Id"]
    try:
        if not starts:
            return None
        started = raw.post(f"/v1.41/containers/{container}/start")
        return None if started.status == 204 else started.raw.decode()
    finally:
        raw.remove(container)


def output(raw: RawEngine, host: dict[str, Any], script: str, *variables: str) -> str:
    """Run a shell script in a container; return what it printed, or the refusal."""
    asked = body(host, "sh", "-c", f"({script}) 2>&1") | {"Env": [*variables]}
    created = raw.post(f"{API}/containers/create", asked)
    if created.status != 201:
        return created.raw.decode()
    container = created.json["Id"]
    try:
        started = raw.post(f"{API}/containers/{container}/start")
        if started.status != 204:
            return started.raw.decode()
        raw.post(f"{API}/containers/{container}/wait")
        return logs(raw, container)
    finally:
        raw.remove(container)


def run_in(raw: RawEngine, container: str, script: str) -> str:
    """Run a shell script by `docker exec`; return what it printed."""
    asked = {"Cmd": ["sh", "-c", f"({script}) 2>&1"], "AttachStdout": True}
    identity = raw.post(f"{API}/containers/{container}/exec", asked).json["Id"]
    return texts(raw.send(Call("POST", f"{API}/exec/{identity}/start", {"Detach": False})).raw)


def logs(raw: RawEngine, container: str) -> str:
    """Return what a container without a terminal printed."""
    return texts(raw.send(Call("GET", f"{API}/containers/{container}/logs?stdout=1&stderr=1")).raw)


def texts(frames: bytes) -> str:
    """Return the text in the frames of a stream of a container without a terminal."""
    found, position = b"", 0
    while position + 8 <= len(frames):
        size = int.from_bytes(frames[position + 4 : position + 8])
        found += frames[position + 8 : position + 8 + size]
        position += 8 + size
    return found.decode(errors="replace")
