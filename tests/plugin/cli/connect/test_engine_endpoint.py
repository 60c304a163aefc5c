"""Which Engine is meant, in Docker's own order."""

import json
from hashlib import sha256
from pathlib import Path

import click
import pytest

from convgpu.cli.connect.engine_endpoint import DEFAULT_HOST, Endpoint, Options, Tls, resolve
from convgpu.cli.terminal.errors import Unavailable


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A DOCKER_CONFIG with the contexts lab and far, of which far has TLS."""
    for name, host in (("lab", "unix:///lab.sock"), ("far", "tcp://far:2376")):
        folder = tmp_path / "contexts/meta" / sha256(name.encode()).hexdigest()
        folder.mkdir(parents=True)
        meta = {"Name": name, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
        (folder / "meta.json").write_text(json.dumps(meta))
    (files := tmp_path / "contexts/tls" / sha256(b"far").hexdigest() / "docker").mkdir(parents=True)
    (files / "ca.pem").touch()
    return tmp_path


def test_without_any_word_it_is_the_socket_of_this_host(tmp_path: Path) -> None:
    found = resolve(Options(), {"DOCKER_CONFIG": str(tmp_path)})
    assert found == Endpoint(DEFAULT_HOST)
    assert found.socket == Path("/var/run/docker.sock")


def test_a_host_goes_before_the_environment_and_that_before_a_context(config: Path) -> None:
    (config / "config.json").write_text('{"currentContext": "lab"}')
    environment = {"DOCKER_CONFIG": str(config), "DOCKER_HOST": "tcp://env:1", "DOCKER_CONTEXT": "far"}
    assert resolve(Options(host="tcp://flag:1"), environment) == Endpoint(
        "tcp://flag:1", None, ("--host", "tcp://flag:1")
    )
    assert resolve(Options(), environment) == Endpoint("tcp://env:1")
    del environment["DOCKER_HOST"]
    files = config / "contexts/tls" / sha256(b"far").hexdigest() / "docker"
    assert resolve(Options(), environment) == Endpoint(
        "tcp://far:2376", Tls(str(files / "ca.pem"), None, None, verify=True)
    )
    del environment["DOCKER_CONTEXT"]
    assert resolve(Options(), environment) == Endpoint("unix:///lab.sock")
    assert resolve(Options(context="default"), environment).host == DEFAULT_HOST


def test_a_context_that_is_named_goes_before_the_environment(config: Path) -> None:
    options = Options(context="lab", config=str(config))
    found = resolve(options, {"DOCKER_HOST": "tcp://env:1"})
    assert found == Endpoint("unix:///lab.sock", None, ("--config", str(config), "--context", "lab"))


def test_tls_takes_its_files_from_where_docker_does(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    environment = {"DOCKER_HOST": "tcp://e:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    assert resolve(Options(tlskey="/my/key"), environment).tls == Tls(
        str(tmp_path / "ca.pem"), str(tmp_path / "cert.pem"), "/my/key", verify=True
    )
    assert resolve(Options(tls=True), {**environment, "DOCKER_TLS_VERIFY": ""}).tls == Tls(
        *(str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem")), verify=False
    )


def test_an_unknown_context_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)no Docker context 'lab'.*docker context ls"):
        resolve(Options(context="lab"), {"DOCKER_CONFIG": str(tmp_path)})


def test_a_host_and_a_context_are_one_too_many() -> None:
    with pytest.raises(click.UsageError, match="two Engines"):
        resolve(Options(host="tcp://h:1", context="lab"), {})
