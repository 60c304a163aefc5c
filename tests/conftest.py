"""Nothing is left out in silence: the lines above pytest's last one name what did not run, and why.

With CONVGPU_REQUIRE=engine,browser,prometheus,spin,slurm,wheels in the environment a test that needs a Docker Engine,
Chromium, Prometheus, spin, Slurm or the wheels for the Debian package and has none fails. Wheels that could not be
fetched because there is no network are nobody's fault: a line names what did not run.
"""

import faulthandler
import functools
import gc
import os
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from daemon import Daemon
from docker_engine import Engine, running_engine
from host_state import host_state, leave_hosts_network
from hypothesis import settings
from preloaded import Template
from prepared_data import prepared_data
from rounds import rounds
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Machines are noisy: how long an example takes is no test. A change is judged by the same examples each time, so that a
# rare one fails nobody else's; with CONVGPU_EXAMPLES in the environment (`scripts/explore`) they are drawn anew.
settings.register_profile(
    "untimed", deadline=None, derandomize="CONVGPU_EXAMPLES" not in os.environ, max_examples=rounds(100, few=40)
)
settings.load_profile("untimed")

# A shell that starts us in the background has us ignore it, and with us every program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]


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


def missing_slurm() -> str | None:
    """Return why no cluster can be started; None if it can."""
    told = os.environ.get("CONVGPU_NO_SLURM")
    there = (ROOT / ".cache/slurm/usr/sbin/slurmctld").exists()
    return told or (missing_engine() if there else "there is no Slurm: `make test` fetches it")


def missing_wheels() -> str | None:
    """Return why the Debian package cannot be built; None if it can."""
    told = os.environ.get("CONVGPU_NO_WHEELS")
    there = any((ROOT / ".cache/release-wheels").glob("*/*.whl"))
    return told or (None if there else "its wheels are not fetched: `make test` does (scripts/release/deb.py --fetch)")


MISSING = {
    "engine": missing_engine,
    "browser": missing_browser,
    "prometheus": missing_prometheus,
    "spin": missing_spin,
    "slurm": missing_slurm,
    "wheels": missing_wheels,
}
NO_NETWORK = "no network:"  # how `scripts/release/deb.py --fetch` begins


def pytest_runtest_setup(item: pytest.Item) -> None:
    for what, missing in MISSING.items():
        if item.get_closest_marker(what) is None:
            continue
        reason = missing()
        if reason is None:
            continue
        is_excused = what == "wheels" and reason.startswith(NO_NETWORK)
        if what in os.environ.get("CONVGPU_REQUIRE", "").split(",") and not is_excused:
            pytest.fail(f"CONVGPU_REQUIRE={what}, and {reason}", pytrace=False)
        pytest.skip(reason)


LANES = "tests/cluster/", "tests/ways/", "tests/lifecycle/authorization/", "tests/lifecycle/"
"""Folders whose tests share an Engine or a cluster, which takes long to start and to end: a lane is for one worker.

They wait nearly all of the time, so they are no worker's that a core waits for (scripts/test), and they go first.
"""
PIDS = tuple(
    f"tests/scheduler/daemon/audit/{name}.py" for name in ("test_kept", "test_origins", "doubts/test_namesakes")
)
"""Files that want certain process IDs, which others of them would get."""
LONG = ("tests/front/", "tests/model/", "tests/hook/", "tests/scheduler/daemon/", "tests/porter/", "tests/properties/")
"""Folders whose files take longest. They go next, so that no worker of pytest-xdist is left with one at the end."""
ORDER = (*LANES, *LONG)


SLOW = (
    "tests/end_to_end/",
    "tests/fakes/tests/",
    "tests/hook/accounting/",
    "tests/hook/calls/",
    "tests/hook/process/",
    "tests/hook/residency/",
    "tests/hook/scheduler/",
    "tests/hook/test_layers.py",
    "tests/plugin/cli/demo/",
    "tests/plugin/cli/test_bad_input.py",
    "tests/plugin/plugin/server/test_worker.py",
    "tests/plugin/plugin/test_whole.py",
    "tests/porter/",
    "tests/properties/",
    "tests/release/",
    "tests/scheduler/daemon/admin_api/",
    "tests/scheduler/daemon/audit/",
    "tests/scheduler/daemon/hook_api/",
    "tests/scheduler/daemon/sessions/",
    "tests/scheduler/daemon/storage/test_disks.py",
    "tests/scheduler/daemon/test_faults.py",
    "tests/scheduler/daemon/test_replay.py",
    "tests/storm/",
)
"""What `make test-fast` leaves out because it takes long: many processes, real time, or thousands of examples."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="no Engine, browser, other server or sanitizer; no slow files")


def is_fast(item: pytest.Item) -> bool:
    """Tell whether a test needs nothing beside this checkout and does not take long."""
    marked = any(item.get_closest_marker(what) for what in MISSING)
    return not marked and not item.nodeid.startswith(SLOW)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("fast"):
        left_out = [item for item in items if not is_fast(item)]
        items[:] = [item for item in items if is_fast(item)]
        config.hook.pytest_deselected(items=left_out)
    items.sort(
        key=lambda item: next((at for at, folder in enumerate(ORDER) if item.nodeid.startswith(folder)), len(ORDER))
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect tests without the garbage collector, and never let it walk through them afterwards.

    What is collected lives as long as the process: 6,000 tests, which each of its full runs would otherwise go through
    for 0.3 s, also in processes that are forked.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


class LaneScheduling(LoadFileScheduling):
    """A file is for one worker, and so is a lane."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PIDS):
            return "process IDs"
        folder = next((lane for lane in LANES if nodeid.startswith(lane)), None)
        return folder or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling | None:
    return LaneScheduling(config, log) if config.getoption("dist") == "loadfile" else None


HANGS, AGAIN = 1200.0, 60.0
"""Seconds after which a step of a test hangs, and after which what it is left by does: that may wait, too.

All tests together take half of that on two cores. Of a test that hangs pytest-timeout bounds the first wait alone.
"""


class Bounded:
    """Has a step of a test fail that hangs, with the stacks of its threads; the others run on."""

    def _bound(self, item: pytest.Item) -> Iterator[None]:
        mark = item.get_closest_marker("hangs_after")
        seconds = mark.args[0] if mark else HANGS

        def fail(*_: object) -> None:
            faulthandler.dump_traceback(file=sys.__stderr__)
            pytest.fail(f"it hangs: not within {seconds:g} s, or once more within {AGAIN:g} s at its end")

        before = signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = pytest.hookimpl(wrapper=True)(_bound)


class NotRun:
    """Collects why tests did not run, from the reports of all of pytest-xdist's workers."""

    def __init__(self) -> None:
        self._files: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a failure at once, too: the run may be ended before its end."""
        if report.failed:
            sys.stderr.write(f"\nFAILED at {report.when}: {report.nodeid}\n")
        if report.skipped and isinstance(report.longrepr, tuple | list):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self._files[reason].add(report.nodeid.partition("::")[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
        """Print behind everything but the one line that pytest ends with, which programs read."""
        yield
        for reason, files in sorted(self._files.items()):
            terminalreporter.write_line(f"NOT RUN: {' '.join(sorted(files))}: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist's tells no person
        config.pluginmanager.register(NotRun())
    config.pluginmanager.register(Bounded())


@pytest.fixture(scope="session", autouse=True)
def _schedulers_are_forked() -> None:
    Daemon.template = Template("convgpu.daemon.__main__:main")


@pytest.fixture(scope="session")
def start_engine() -> Iterator[Callable[..., AbstractContextManager[Engine]]]:
    """A starter of Engines that have convgpu/demo and the plugin `convgpu`, in a network of the tests' own.

    The host's network and its own Engine stay as they are.
    """
    leave_hosts_network()
    before = host_state()
    yield functools.partial(running_engine, data=prepared_data())
    assert host_state() == before, "the host is not as it was: the tests changed it, or somebody else did meanwhile"
