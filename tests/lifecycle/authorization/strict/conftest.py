"""An Engine under the strict rules of the sample site."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import strict_site
from docker_engine import Engine
from raw_engine import RawEngine
from strict_run import API, body, ruled_engine


@contextmanager
def folders() -> Iterator[None]:
    """The folders of the site, for one run of this machine at a time; nobody else's are taken for them, and removed."""
    top, mark = Path(strict_site.TOP), Path(strict_site.TOP, ".of-these-tests")
    with Path(tempfile.gettempdir(), "convgpu-strict-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if top.exists() and not mark.exists():
            pytest.fail(f"{top} is not of these tests, which remove it afterwards: move it away")
        for folder in (strict_site.DATA, f"{strict_site.DATA}/run-7", f"{strict_site.TOOLS}/bin"):
            Path(folder).mkdir(parents=True, exist_ok=True)
        mark.touch()
        # Of a run that was killed; `ismount` takes no bind mount of the same file system for one.
        while subprocess.run(["umount", strict_site.DATA], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            pass
        subprocess.run(["mount", "--bind", strict_site.DATA, strict_site.DATA], check=True)
        subprocess.run(["mount", "-o", "remount,bind,nosuid,nodev", strict_site.DATA], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", strict_site.DATA], check=True)
            shutil.rmtree(top)


@pytest.fixture(scope="session")
def site(start_engine: Callable[..., AbstractContextManager[Engine]]) -> Iterator[Engine]:
    """An Engine whose plugin and runtime read one file of strict rules."""
    with folders(), ruled_engine(start_engine, strict_site.RULES) as engine:
        yield engine


@pytest.fixture(scope="session")
def raw(site: Engine) -> RawEngine:
    return RawEngine(f"{site.directory}/docker.sock")


@pytest.fixture
def running(raw: RawEngine) -> Iterator[str]:
    """A container that runs."""
    container = raw.post(f"{API}/containers/create", body({}, "sleep", "600")).json["Id"]
    assert raw.post(f"{API}/containers/{container}/start").status == 204
    yield container
    raw.remove(container)
