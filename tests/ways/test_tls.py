"""An Engine behind TLS on loopback, with an authority of its own: named by options, by environment and by a context."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from forked_command import run_command

pytestmark = pytest.mark.engine


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)


def make_certificates(folder: Path) -> Path:
    """An authority, and a certificate of it for the Engine and for its user, by the names that docker knows."""
    folder.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(folder, "req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=authority")
    for name in ("server", "client"):
        files = ("-keyout", f"{name}-key.pem", "-out", f"{name}.csr")
        openssl(folder, "req", *key, *files, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        signed = ("-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-copy_extensions", "copy")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    (folder / "cert.pem").symlink_to("client.pem")
    (folder / "key.pem").symlink_to("client-key.pem")
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory, start_engine):
    """The Engine's address, and the folder of its user's certificates."""
    files = make_certificates(tmp_path_factory.mktemp("tls") / "ours")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    certificates = {
        "tlscacert": f"{files}/ca.pem",
        "tlscert": f"{files}/server.pem",
        "tlskey": f"{files}/server-key.pem",
    }
    with start_engine(hosts=[address], settings={"tlsverify": True, **certificates}, data=None):
        yield address, files


@pytest.fixture
def ask(tmp_path):
    """What `convgpu WORDS devices` says; the Engine that it means has no plugin, and only it can say so."""

    def run(*words, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
        environment = {**kept, "DOCKER_CONFIG": str(tmp_path), **variables}
        done = run_command(*words, "devices", env=environment)
        assert done.returncode == 3, done
        return done.stderr.splitlines()[0]

    return run


REACHED = "Error: the Docker Engine has no plugin 'convgpu'."


def test_the_engine_is_reached_as_docker_reaches_it(secured, ask, tmp_path):
    address, files = secured
    options = ("--tlscacert", f"{files}/ca.pem", "--tlscert", f"{files}/cert.pem", "--tlskey", f"{files}/key.pem")
    assert ask("--tlsverify", *options, "-H", address) == REACHED
    assert ask(DOCKER_HOST=address, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=str(files)) == REACHED
    endpoint = f"host={address},ca={files}/ca.pem,cert={files}/cert.pem,key={files}/key.pem"
    create = ["docker", "context", "create", "lab", "--docker", endpoint]
    subprocess.run(create, check=True, capture_output=True, env={**os.environ, "DOCKER_CONFIG": str(tmp_path)})
    assert ask("--context", "lab") == REACHED
    assert ask(DOCKER_CONTEXT="lab") == REACHED


def test_without_the_right_certificates_nothing_is_said(secured, ask, tmp_path):
    address, files = secured
    other = make_certificates(tmp_path / "other")
    ours, theirs = ((f"{folder}/ca.pem", f"{folder}/cert.pem", f"{folder}/key.pem") for folder in (files, other))
    wrong = {
        ("--tlsverify", "--tlscacert", theirs[0], "--tlscert", ours[1], "--tlskey", ours[2]): "no TLS with",
        ("--tls", "--tlscert", theirs[1], "--tlskey", theirs[2]): "no TLS with",
        ("--tlsverify", "--tlscacert", ours[0]): "no TLS with",
        (): f"the Docker Engine at {address} wants TLS.",
        ("--tlsverify", "--tlscacert", f"{files}/none.pem"): f"the Docker Engine at {address} does not answer",
    }
    assert {
        words: said for words in wrong if not (said := ask(*words, "-H", address)).startswith(f"Error: {wrong[words]}")
    } == {}
