"""Nothing is left out in silence: the very last line names what did not run, and why.

With CONVGPU_REQUIRE=engine in the environment a test that needs a Docker Engine and has none fails.
"""

import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: how long an example takes is no test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

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


def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOT_RUN] = defaultdict(set)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("engine") is None:
        return
    reason = missing_engine()
    if reason is None:
        return
    if "engine" in os.environ.get("CONVGPU_REQUIRE", "").split(","):
        pytest.fail(f"CONVGPU_REQUIRE=engine, and {reason}", pytrace=False)
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
