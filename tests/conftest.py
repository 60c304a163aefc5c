"""Nothing is left out in silence: the very last line names what did not run, and why.

With CONVGPU_REQUIRE=engine,browser,prometheus,spin in the environment a test that needs a Docker Engine, Chromium or
Prometheus and has none fails.
"""

import os
import shutil
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: how long an example takes is no test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell that starts us in the background has us ignore it, and with us every program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
NOT_RUN = pytest.StashKey[dict[str, set[str]]]()


def missing_engine() -> str | None:
    """Return why tests cannot start Engines of their own; None if they can."""
    told = os.environ.get("CONVGPU_NO_ENGINE")
    if told:
        return told
    if os.geteuid() != 0:
        return "starting a Docker Engine needs root"
    for program in ("dockerd", "docker", "docker-registry"):
        if shutil.which(program) is None:
            return f"{program} is not installed: `make test` installs it"
    if not (ROOT / "build/plugin/VERSION").exists():
        return "the plugin is not built: `make test` builds it"
    return None


def missing_browser() -> str | None:
    """Return why no Chromium can be started; None if it can."""
    told = os.environ.get("CONVGPU_NO_BROWSER")
    return told or (None if shutil.which("chromium") else "chromium is not installed: `make test` installs it")


def missing_prometheus() -> str | None:
    """Return why Prometheus cannot be asked; None if it can."""
    told = os.environ.get("CONVGPU_NO_PROMETHEUS")
    there = (ROOT / ".cache/prometheus/usr/bin/promtool").exists()
    return told or (None if there else "there is no promtool: `make test` fetches it")


def missing_spin() -> str | None:
    """Return why the formal model cannot be checked; None if it can."""
    told = os.environ.get("CONVGPU_NO_SPIN")
    return told or (None if shutil.which("spin") else "spin is not installed: `make test` installs it")


MISSING = {
    "engine": missing_engine,
    "browser": missing_browser,
    "prometheus": missing_prometheus,
    "spin": missing_spin,
}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOT_RUN] = defaultdict(set)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for what, missing in MISSING.items():
        if item.get_closest_marker(what) is None:
            continue
        reason = missing()
        if reason is None:
            continue
        if what in os.environ.get("CONVGPU_REQUIRE", "").split(","):
            pytest.fail(f"CONVGPU_REQUIRE={what}, and {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        item.config.stash[NOT_RUN][reason].add(item.nodeid.partition("::")[0])
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the last line; `pytest_terminal_summary` would come before pytest's own."""
    for reason, files in config.stash.get(NOT_RUN, {}).items():
        print(f"NOT RUN: {' '.join(sorted(files))}: {reason}")
