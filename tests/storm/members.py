"""Programs that hold memory in elastic containers, and the host they are on: what a storm kills and looks at."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from built import DRIVER, HOOK, PORTER
from compiled import SOURCES, compile_c
from daemon import CONTEXT, Daemon, JsonAdmin, host_pool, wait_until
from gpu_host import CudaProcess
from hooked_program import SUCCESS, Program
from steps import Plan

from convgpu.client.scheduler import SchedulerUnavailable
from convgpu.daemon.residency.pool_files import UNIT_SIZE, PoolFiles

MIB: Final = 1 << 20
PIECE: Final = 64 * MIB
BLOCKS: Final = (2 * MIB, 6 * MIB, PIECE + 2 * MIB)
HELD: Final = sum(BLOCKS)
POOL: Final = 256 * MIB
NAMES: Final = ("a", "b")
BOUND: Final = 120.0  # seconds after which something counts as waiting for ever
SHORT: Final = 1.0  # seconds for the answer of a scheduler that may have been killed


def programs(folder: Path) -> Path:
    """Compile what the storm starts; return the folder."""
    sources = sorted(SOURCES.glob("commands/*.c"))
    compile_c(folder / "program", *sources, "-ldl")
    compile_c(folder / "saboteur.so", "-shared", "-fPIC", Path(__file__).parent / "saboteur.c")
    return folder


def environment(built: Path, plan: Plan, role: str) -> dict[str, str]:
    """Return the variables by which a process names its steps."""
    return {"LD_PRELOAD": str(built / "saboteur.so"), "SABOTEUR_PLAN": str(plan.path), "SABOTEUR_ROLE": role}


def descendants(pid: int) -> list[int]:
    """Return the pids of the processes that a process or its children started."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []
    return children + [found for child in children for found in descendants(child)]


def has_gone(pid: int) -> bool:
    """Return whether a process has ended; it may still be a zombie."""
    return not Path(f"/proc/{pid}/exe").exists()


def is_porter(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("convgpu-porter")
    except OSError:  # it has ended
        return False


class PluginHost(Daemon):
    """The plugin's processes in the place of a scheduler: to kill it is to kill the plugin."""

    template = None

    def __init__(self, directory: Path, devices: str = "simulated:16GiB", *options: str) -> None:
        given = {
            "devices": devices,
            "directory": directory,
            "libraries": HOOK,
            "simulated_driver": DRIVER,
            "porter": PORTER / "convgpu-porter",
            "socket": directory / "plugin.sock",
            "engine": directory / "no-engine.sock",
            **dict(option.removeprefix("--").replace("-", "_").split("=") for option in options),
        }
        os.environ.update({f"CONVGPU_{name.upper()}": str(value) for name, value in given.items()})
        super().__init__(directory, devices)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "convgpu.plugin"]


class Member:
    """A container, and the program that runs in it; after a kill another one."""

    def __init__(self, daemon: Daemon, name: str, built: Path, plan: Plan) -> None:
        self.name = name
        self._daemon, self._built, self._plan = daemon, built, plan
        self._folder = daemon.container(name, memory="700m", suspend="auto")
        self._started = 0
        self.start()

    def start(self) -> None:
        """Start the program, and fill its blocks with values that no other program has."""
        variables = environment(self._built, self._plan, "program")
        variables["LD_PRELOAD"] += f":{self._folder / 'libconvgpu.so'}"
        variables |= {"LD_LIBRARY_PATH": str(self._folder / "driver"), "PATH": os.environ["PATH"]}
        self.program = Program([str(self._built / "program"), "dlsym"], variables, self._built)
        self._started += 1
        self._call("init 0")
        self._call(f"use {self._call('retain 0')}")
        self._blocks = [(self._call(f"alloc {size}"), size, self._value(block)) for block, size in enumerate(BLOCKS)]
        for address, size, value in self._blocks:
            self._call(f"fill {address} {size} {value}")

    def _value(self, block: int) -> int:
        return (97 * self._started + 31 * block + 7 * NAMES.index(self.name) + 1) % 251 + 1

    def _call(self, command: str) -> int:
        result = self.program.call(command)
        assert result.code == SUCCESS, (self.name, command, result.code)
        return result.number if result.values else 0

    def has_ended(self) -> bool:
        return self.program._process.poll() is not None

    def wrong_bytes(self) -> int:
        """Compare every byte."""
        return sum(self._call(f"compare {address} {size} {value}") for address, size, value in self._blocks)


class Host:
    """A scheduler with one device and two containers that hold memory.

    Attributes:
        wanted: which containers are to be out. `deep`: which of them with their contexts.
        family: the processes that the scheduler or the plugin had started when the kill was planned.
    """

    def __init__(self, daemon: Daemon, built: Path, plan: Plan) -> None:
        self.daemon, self.plan = daemon, plan
        daemon.admin = JsonAdmin(str(daemon.directory / "admin.sock"), timeout=BOUND)  # a start may take long
        self.members = {name: Member(daemon, name, built, plan) for name in NAMES}
        self.wanted: set[str] = set()
        self.deep: set[str] = set()
        self.family: list[int] = []
        self._observer = CudaProcess(daemon.directory / "driver", {}, [])
        self._observer.start()
        self.settle()
        self._free = self._observer.free_memory()

    # -- what is asked for -----------------------------------------------------------------------------------

    def ask(self, wanted: set[str], deep: set[str] | None = None) -> None:
        """Ask for these containers to be out and the others to run; a scheduler that dies meanwhile is no error."""
        before = {name: self._stance(name) for name in NAMES}
        self.wanted, self.deep = set(wanted), set(deep or ())
        admin = JsonAdmin(str(self.daemon.directory / "admin.sock"), timeout=SHORT)
        for name in NAMES:
            if self._stance(name) != before[name]:
                with contextlib.suppress(SchedulerUnavailable):
                    self._ask_for(admin, name)

    def _stance(self, name: str) -> tuple[bool, bool]:
        return name in self.wanted, name in self.deep

    def _ask_for(self, admin: JsonAdmin, name: str) -> None:
        if name in self.wanted:
            admin.request("suspend", name=name, deep=name in self.deep)
        else:
            admin.request("resume", name=name)

    def has_arrived(self) -> bool:
        """Return whether each container is where it was asked to be; no, without a scheduler."""
        admin = JsonAdmin(str(self.daemon.directory / "admin.sock"), timeout=SHORT)
        with contextlib.suppress(SchedulerUnavailable):
            return self.is_settled(admin)
        return False

    def mend(self) -> list[str]:
        """Start again what was killed, as an Engine or a user would; return what that was."""
        assert self.daemon.process is not None
        mended = []
        if self.daemon.process.poll() is not None:
            wait_until(lambda: all(has_gone(pid) for pid in self.family), "its children have ended with it", BOUND)
            self.daemon.start()
            mended.append("scheduler")
        for name, member in self.members.items():
            if member.has_ended():
                member.program.kill()
                self.wanted.discard(name)  # a new program would wait for the container to be resumed
                self.deep.discard(name)
                self.daemon.admin.request("resume", name=name)
                member.start()
                mended.append(name)
        for name in NAMES:
            self._ask_for(self.daemon.admin, name)
        return mended

    # -- what is seen ----------------------------------------------------------------------------------------

    def is_settled(self, admin: JsonAdmin | None = None) -> bool:
        """Return whether each container is where it was asked to be."""
        found = (admin or self.daemon.admin).request("containers")["containers"]
        return all(self._is_there(state) for state in found)  # type: ignore[attr-defined]

    def _is_there(self, state: dict[str, object]) -> bool:
        [device] = state["devices"]  # type: ignore[misc] # as JSON has it
        assert state["residency"] != "busy", state
        if state["name"] in self.wanted:
            out = HELD + (CONTEXT if state["name"] in self.deep else 0)
            return (state["residency"], device["out"]) == ("stopped", out)
        return (state["residency"], device["out"], state["suspended"]) == ("running", 0, False)

    def settle(self) -> None:
        wait_until(self.is_settled, f"{sorted(self.wanted)} are out, the others run", BOUND)

    def copied(self) -> int:
        """Return the bytes of complete copies, by the index of the pool."""
        return UNIT_SIZE * sum(1 for _ in PoolFiles(host_pool(self.daemon.directory)).owners())

    def check(self) -> None:
        """Nothing is lost, doubled or left behind, on the device, on the host, and in the ledger."""
        self.settle()
        copied = len(self.wanted) * HELD
        wait_until(lambda: self.copied() == copied, f"the pool holds {copied} bytes", BOUND)
        out = copied + len(self.deep) * CONTEXT
        wait_until(lambda: self._observer.free_memory() == self._free + out, "the device's memory is back", BOUND)
        for name in sorted(set(NAMES) - self.wanted):
            assert self.members[name].wrong_bytes() == 0, name
        expected = (len(NAMES) * (HELD + CONTEXT), out)
        wait_until(lambda: self._used_and_out() == expected, f"the ledger has {expected} bytes used and out", BOUND)

    def _used_and_out(self) -> tuple[int, int]:
        [device] = self.daemon.admin.request("devices")["devices"]  # type: ignore[misc]
        return int(device["used"]), int(device["out"])

    # -- who is there ----------------------------------------------------------------------------------------

    def porter(self) -> int:
        """Return the porter's pid; it may have to be started again."""
        found: list[int] = []

        def look() -> bool:
            assert self.daemon.process is not None
            found[:] = [pid for pid in descendants(self.daemon.process.pid) if is_porter(pid)]
            return bool(found)

        wait_until(look, "a porter runs", BOUND)
        return found[0]

    def pid_of(self, victim: str) -> int:
        assert self.daemon.process is not None
        if victim == "scheduler":
            return self.daemon.process.pid
        return self.porter() if victim == "porter" else self.members[victim].program.pid

    def is_dead(self, pid: int) -> bool:
        """Return whether a process that was killed has ended with all its threads."""
        assert self.daemon.process is not None
        ours = {member.program.pid: member.has_ended for member in self.members.values()}
        ours[self.daemon.process.pid] = lambda: self.daemon.process is None or self.daemon.process.poll() is not None
        if pid in ours:
            return ours[pid]()
        return has_gone(pid)

    def kill(self, victim: str) -> None:
        if victim != "scheduler":
            os.kill(self.pid_of(victim), signal.SIGKILL)
            return
        self._kill_scheduler()
        with contextlib.suppress(SchedulerUnavailable):  # the planned kill may be in the middle of its start
            self.daemon.start()

    def _kill_scheduler(self) -> None:
        self.family = descendants(self.pid_of("scheduler"))
        self.daemon.kill()
        wait_until(lambda: all(has_gone(child) for child in self.family), "its children have ended with it", BOUND)

    def end(self) -> None:
        """End the programs: the host's memory is given back, and the ledger is empty.

        Then once more with memory that is out, and with the scheduler killed before the programs: nothing lasts.
        """
        self._end_programs()
        path = host_pool(self.daemon.directory)
        wait_until(lambda: path.stat().st_size == 0, "the host's memory is given back", BOUND)
        wait_until(lambda: self._used_and_out() == (0, 0), "nothing is used", BOUND)
        self.mend()
        self.ask(set(NAMES))
        self.settle()
        self._kill_scheduler()
        self._end_programs()
        self.daemon.start()
        wait_until(lambda: not path.parent.exists(), "the next scheduler has given the host's memory back", BOUND)
        self._observer.kill()

    def _end_programs(self) -> None:
        for member in self.members.values():
            member.program.kill()


@contextlib.contextmanager
def running_host(folder: Path, kind: type[Daemon] = Daemon) -> Iterator[Host]:
    """Start a scheduler, by itself or in a plugin, and its containers in the folder."""
    plan, built, saved = Plan(folder / "plan"), programs(folder), dict(os.environ)
    os.environ |= environment(built, plan, "scheduler")
    daemon = kind(folder / "d", "simulated:4GiB", f"--host-memory={POOL}", "--audit=0")
    host = None
    try:
        host = Host(daemon, built, plan)
        yield host
    finally:
        for member in host.members.values() if host else ():
            member.program.kill()
        daemon.kill()
        shutil.rmtree(host_pool(folder / "d").parent, ignore_errors=True)
        os.environ.clear()
        os.environ |= saved
        plan.close()
