"""Containers that use a device without a limit: who is ended, on the simulated driver and in real cgroups."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from daemon import CONTEXT, DRIVER, GIB, Daemon, running_daemon, wait_until

from convgpu.daemon.audit import container_resolver
from convgpu.daemon.audit.container_resolver import ProcessIndex

HOLD = DRIVER / "gpu-hold"
HOLDS = f"tail -f /dev/null | {HOLD} --wait-for-stdin 1g & wait"
BURSTS = f"while :; do {HOLD} --hold 0.4 1g; sleep 0.2; done"
ALONE = f"exec {HOLD} --hold 60 1g"
OPTIONS = ["--audit=100ms", "--overuse-after=200ms"]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, "--overuse=stop") as daemon:
        yield daemon


@contextmanager
def holder(daemon: Daemon, cgroup: Path | None = None, *, script: str = HOLDS) -> Iterator[subprocess.Popen[bytes]]:
    """A program without the hook that holds memory, in a cgroup or as one of the host's."""
    enter = f"echo $$ >{cgroup}/cgroup.procs; " if cgroup else ""
    environment = os.environ | {"LD_LIBRARY_PATH": str(daemon.directory / "driver")}
    # The shell is the container's oldest process; what it starts uses the device.
    command = ["bash", "-c", enter + script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False, stderr=subprocess.DEVNULL)


def unlimited(daemon: Daemon) -> dict[str, dict[str, object]]:
    """Return what the scheduler tells of containers without a limit whose start it knows, by their names."""
    rows = daemon.admin.request("devices")["devices"][0]["unlimited"]
    return {row["name"]: row for row in rows if row["started"]}


def judge(daemon: Daemon, container: str, kept: str, later: int = 0) -> None:
    """Say what the plugin would say of a container; `later`: of another start, in clock ticks."""
    wait_until(lambda: container in unlimited(daemon), "it is seen")
    row = unlimited(daemon)[container]
    verdict = {"id": row["id"], "started": row["started"] + later, "kept": kept}
    daemon.admin.request("judge", verdicts=[verdict])


def test_one_that_nothing_permits_is_ended_and_the_hosts_programs_are_not(daemon: Daemon, cgroup: Path) -> None:
    with holder(daemon) as host, holder(daemon, cgroup) as container:
        judge(daemon, cgroup.name, "")
        wait_until(lambda: container.poll() is not None, "all its processes are ended")
        wait_until(lambda: cgroup.name not in unlimited(daemon), "nothing of it is left")
        [event] = daemon.events("stopped")
        assert (event["container"], event["reason"], host.poll()) == (cgroup.name, "unlimited", None)
        log = daemon.log.read_text()
        assert log.index("nothing permits it, and it is ended in 0.2 s") < log.index("GPU did so for 0.2 s")


def test_one_that_pauses_is_ended_by_one_verdict(tmp_path: Path, cgroup: Path) -> None:
    options = ["--audit=50ms", "--overuse-after=1s", "--overuse=stop"]
    with (
        running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon,
        holder(daemon, cgroup, script=BURSTS) as container,
    ):
        judge(daemon, cgroup.name, "")
        wait_until(lambda: container.poll() is not None, "all its processes are ended")
        assert [event["container"] for event in daemon.events("stopped")] == [cgroup.name]


def test_it_is_shown_with_its_start_and_why_it_is_kept(daemon: Daemon, cgroup: Path) -> None:
    with holder(daemon, cgroup) as container:
        judge(daemon, cgroup.name, "an exemption")
        wait_until(lambda: unlimited(daemon)[cgroup.name]["kept"] is not None, "it is judged")
        oldest = int(Path(f"/proc/{container.pid}/stat").read_text().rpartition(")")[2].split()[19])
        known = {"name": cgroup.name, "id": cgroup.name, "size": GIB + CONTEXT, "pid": 0, "is_charged": False}
        assert unlimited(daemon) == {cgroup.name: known | {"started": oldest, "kept": "an exemption"}}
    wait_until(lambda: unlimited(daemon) == {}, "it is forgotten")


def test_who_is_permitted_or_not_judged_or_judged_at_another_start_goes_on(
    daemon: Daemon, make_cgroup: Callable[[], Path]
) -> None:
    with ExitStack() as stack:
        groups = [make_cgroup() for _ in range(4)]
        permitted, silent, restarted, last = (stack.enter_context(holder(daemon, group)) for group in groups)
        judge(daemon, groups[0].name, "an exemption")
        judge(daemon, groups[2].name, "", later=1)
        judge(daemon, groups[3].name, "")
        wait_until(lambda: last.poll() is not None, "the last is ended, as the others would have been")
        assert [each.poll() for each in (permitted, silent, restarted)] == [None] * 3
        assert [event["container"] for event in daemon.events("stopped")] == [groups[3].name]


def test_a_late_verdict_about_a_start_that_is_over_changes_nothing(daemon: Daemon, cgroup: Path) -> None:
    with holder(daemon, cgroup):
        wait_until(lambda: cgroup.name in unlimited(daemon), "the first start is seen")
        over = unlimited(daemon)[cgroup.name]["started"]
    with holder(daemon, cgroup) as again:

        def is_seen_again() -> bool:
            return unlimited(daemon).get(cgroup.name, {}).get("started", over) != over

        wait_until(is_seen_again, "the second start is seen")
        now = unlimited(daemon)[cgroup.name]["started"]
        verdicts = [{"id": cgroup.name, "started": start, "kept": kept} for start, kept in ((over, ""), (now, "x"))]
        daemon.admin.request("judge", verdicts=verdicts[::-1])
        wait_until(lambda: unlimited(daemon)[cgroup.name]["kept"] == "x", "the verdict about this start holds")
        assert again.poll() is None


def test_a_program_of_the_hosts_that_has_no_right_is_ended_and_no_other(daemon: Daemon) -> None:
    """Not who is permitted, nor who is not judged, nor who has the ID of one that was judged."""
    with ExitStack() as stack:
        permitted, silent, another, last = (stack.enter_context(holder(daemon, script=ALONE)) for _ in range(4))
        judge(daemon, f"pid {permitted.pid}", "user 0 may open the GPU's device nodes")
        judge(daemon, f"pid {another.pid}", "", later=1)
        judge(daemon, f"pid {last.pid}", "")
        assert last.wait() == -9
        assert [each.poll() for each in (permitted, silent, another)] == [None] * 3
        rows = [(row["name"], row["pid"]) for row in unlimited(daemon).values() if row["name"] != f"pid {last.pid}"]
        assert sorted(rows) == sorted((f"pid {each.pid}", each.pid) for each in (permitted, silent, another))
        log = daemon.log.read_text()
        assert log.index("which its user may not open, and is ended in 0.2 s") < log.index(
            "may not open, and is ended\n"
        )


def test_containers_and_programs_of_the_hosts_in_turn_have_the_time_of_one(
    tmp_path: Path, make_cgroup: Callable[[], Path]
) -> None:
    """The first has all of it, and the others are ended at once: in less time than it had, also on a slow machine."""
    options = ["--audit=50ms", "--overuse-after=15s", "--overuse=stop"]
    with running_daemon(tmp_path / "d", "simulated:16GiB", *options) as daemon:
        lasted = []
        for group in (make_cgroup(), None, make_cgroup()):
            with holder(daemon, group, script=ALONE) as program:
                judge(daemon, group.name if group else f"pid {program.pid}", "")
                judged = time.monotonic()
                assert program.wait() == -9
                lasted.append(time.monotonic() - judged)
        assert max(lasted[1:]) < lasted[0]


def test_where_nobody_is_ended_programs_of_the_hosts_are_not_shown(tmp_path: Path, cgroup: Path) -> None:
    with (
        running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS) as daemon,
        holder(daemon, script=ALONE),
        holder(daemon, cgroup),
    ):
        wait_until(lambda: daemon.admin.request("devices")["devices"][0]["external"] > 2 * GIB, "both are seen")
        wait_until(lambda: bool(unlimited(daemon)), "the container is shown")
        assert list(unlimited(daemon)) == [cgroup.name]


def test_nobody_is_ended_before_the_site_is_strict(tmp_path: Path, cgroup: Path) -> None:
    rules = tmp_path / "rules.toml"
    with (
        running_daemon(tmp_path / "d", "simulated:16GiB", *OPTIONS, f"--rules={rules}") as daemon,
        holder(daemon, cgroup) as container,
    ):
        judge(daemon, cgroup.name, "")
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 0.5, "it would have been ended by now")
        assert (container.poll(), daemon.events("stopped")) == (None, [])
        rules.write_text('mode = "strict"\n')
        wait_until(lambda: container.poll() is not None, "it is ended")


def test_a_device_where_a_container_has_no_limit_is_none_for_its_programs(tmp_path: Path, cgroup: Path) -> None:
    """It has a volume, and the Engine lists it, but with a limit on another device only."""
    with running_daemon(tmp_path / "d", "simulated:16GiB,16GiB", *OPTIONS, "--overuse=stop") as daemon:
        second = daemon.admin.request("devices")["devices"][1]["uuid"]
        daemon.container("a", memory="8g", gpus=second)
        row = {"id": cgroup.name, "name": "a", "state": "running", "volumes": ["a"]}
        daemon.admin.request("listed", asked=time.time(), containers=[row], volumes=["a"])
        with holder(daemon, cgroup) as container:
            judge(daemon, "a", "")
            wait_until(lambda: container.poll() is not None, "it is ended")
        assert [event["container"] for event in daemon.events("stopped")] == ["a"]


def test_a_cgroup_below_a_containers_own_names_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ProcessIndex({}, {"victim": "volume"}, {}, frozenset({"outer"}))
    cgroups = {1: ["outer", "hostile", "victim"], 2: ["outer", "victim"], 3: ["outer"], 4: []}
    monkeypatch.setattr(container_resolver, "containers_of", cgroups.__getitem__)
    monkeypatch.setattr(container_resolver, "pid_namespace", lambda _: None)
    told = {pid: (index.container_of(pid), index.volume_of(pid)) for pid in cgroups}
    assert told == {1: ("hostile", None), 2: ("victim", "volume"), 3: (None, None), 4: (None, None)}
