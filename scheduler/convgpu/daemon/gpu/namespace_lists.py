"""A program that asks the driver from within PID namespaces what processes of them hold.

The kernel's driver compares the process of each client (its `struct pid`) with the ID that is asked about in the PID
namespace of who asks (open-gpu-kernel-modules since 565, `_gpuMatchClientPid` in src/nvidia/src/kernel/gpu/gpu_rmapi.c;
seen on a card, docs/measurements.md). So within a container's namespace an ID means a process of it, also a dead one,
whoever has that process's ID on the host by now.

A process of ours is among the container's for some 10 ms each time, or some 30 where only NVML can be asked. It has no
capability from its first moment on, and user and group IDs of which no two are the same, so that nobody who took one
of them may limit it (prlimit(2) wants all three). Nobody without CAP_SYS_PTRACE may look into it, and who may finds no
files but the driver's, unless only NVML can be asked. The container's root can end or stop it. Who does that each time
does not want it to be told what it has.

    python -m convgpu.daemon.gpu.namespace_lists LIBRARY <QUESTIONS
"""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final, NoReturn

import msgspec
import pynvml

from convgpu.daemon.gpu.kernel_driver import KernelDriver
from convgpu.daemon.gpu.process_lists import listed_on, or_none

# Seconds for one answer.
_PATIENCE: Final = 0.25
# Seconds for all of them.
_MOST_PATIENCE: Final = 3.0
# Figures that are compared, and the seconds between them at most, at random: who has memory can free it for a moment.
_FIGURES: Final = 4
_PAUSE: Final = 0.002
# Times more that a namespace is asked where who asks was ended: the kernel may have done it, for want of memory.
_MORE_TRIES: Final = 1
# Real, effective and saved; no user has them.
_NO_IDS: Final = (2**31 - 2, 2**31 - 3, 2**31 - 4)
_NEW_PID: Final = 0x20000000  # CLONE_NEWPID
_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_KEEP_CAPABILITIES, _SET_NO_NEW_PRIVILEGES = 1, 4, 8, 38  # prctl(2)
_CAPABILITIES: Final = 0x20080522  # version 3, capabilities(7)
_SETUID, _NET_ADMIN, _SYS_CHROOT, _SYS_ADMIN = 1 << 7, 1 << 12, 1 << 18, 1 << 21
# How one that asked there ended, by the status of who started it.
_TOLD, _DISTURBED, _LATE, _OVER, _FAULT = range(5)
_random: Final = SystemRandom()
_libc: Final = ctypes.CDLL(None, use_errno=True)

# Bytes by device and pid.
Lists = Mapping[str, Mapping[int, int]]


class NamespaceQuestion(msgspec.Struct, frozen=True):
    """Processes of one PID namespace.

    Attributes:
        namespace: descriptor.
        inner: the pids that they have there.
        outer: the pids that they have for who asks, and maybe others, too.
    """

    namespace: int
    inner: Sequence[int]
    outer: Sequence[int]


class NamespaceAnswer(msgspec.Struct, frozen=True):
    """What processes of one PID namespace hold.

    Attributes:
        most: by the inner pids, of several figures the largest; who is missing holds nothing. None: nobody knows.
        least: what all hold together who have the outer pids, of several figures from before till after the smallest.
        is_disturbed: whoever asked was ended or stopped there each time.
        trouble: why nobody knows.
    """

    most: Lists | None = None
    least: Lists = {}
    is_disturbed: bool = False
    trouble: str = ""


def ask_namespaces(
    library: str, questions: Sequence[NamespaceQuestion], patience: float = _MOST_PATIENCE
) -> list[NamespaceAnswer]:
    """Return what the driver tells within PID namespaces, but our own and those above it; this takes some 0.3 s.

    Args:
        library: NVML's path, or its name for the loader.
        questions: one for each namespace.
        patience: seconds.

    Raises:
        OSError: nobody can be asked.
    """
    descriptors = [one.namespace for one in questions]
    with subprocess.Popen(
        [sys.executable, "-m", __name__, library],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
    ) as program:
        try:
            told, complaint = program.communicate(msgspec.json.encode(questions), patience)
        except subprocess.TimeoutExpired as error:
            program.kill()
            raise OSError(f"no answer within {patience:g} s") from error
    if program.returncode:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"status {program.returncode}: {last}")
    try:
        return msgspec.json.decode(told, type=list[NamespaceAnswer])
    except msgspec.DecodeError as error:
        raise OSError(str(error)) from error


class _Driver:
    """Tells what processes hold, by the pids that they have for who asks; the kernel's driver does, or NVML.

    Args:
        library: NVML.
        nowhere: a descriptor of an empty folder.
    """

    def __init__(self, library: str, nowhere: int) -> None:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # pynvml finds it by its soname
        pynvml.nvmlInit()
        self._nowhere = nowhere
        self._kernel: KernelDriver | None = None
        minors = (or_none(pynvml.nvmlDeviceGetMinorNumber, handle) for handle in _devices())
        try:
            kernel = KernelDriver(minor for minor in minors if minor is not None)
            for uuid in kernel.devices:
                kernel.held(uuid, [os.getpid()])
            self._kernel = kernel
        except OSError:
            pass  # NVML answers the same, and takes longer

    def held(self, pids: Sequence[int]) -> dict[str, dict[int, int]]:
        """Return the bytes by device and pid."""
        if self._kernel is not None:
            return {uuid: self._kernel.held(uuid, pids) for uuid in self._kernel.devices}
        lists = {pynvml.nvmlDeviceGetUUID(handle): listed_on(handle) for handle in _devices()}
        chosen = {uuid: rows for uuid, rows in lists.items() if rows is not None}
        return {uuid: {pid: rows[pid] for pid in pids if pid in rows} for uuid, rows in chosen.items()}

    def begin_anew(self) -> None:
        """Go on in another process, which NVML does not without being told."""
        if self._kernel is None:
            pynvml.nvmlInit()

    def forget_files(self) -> None:
        """Give up all files but those that are open, where no more have to be opened."""
        if self._kernel is not None:
            os.fchdir(self._nowhere)
            os.chroot(".")
            _libc.setfsuid(_NO_IDS[0])


def _devices() -> list[object]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def main() -> None:
    """Print what is told within each namespace, in their order, as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[NamespaceQuestion])
    nowhere = _make_nowhere()
    _become_nobody()
    driver = _Driver(sys.argv[1], nowhere)
    sys.stdout.buffer.write(msgspec.json.encode([_ask(driver, one) for one in questions]))


def _make_nowhere() -> int:
    """Return a descriptor of a folder that is gone: nothing is in it, and nothing can be made there."""
    folder = tempfile.mkdtemp()
    try:
        return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        Path(folder).rmdir()


def _become_nobody() -> None:
    """Keep nothing of root but what enters namespaces, and what opens the driver's files (fsuid; credentials(7)).

    CAP_NET_ADMIN is kept without being in force: nobody without it may make us wait (sched_setscheduler(2)).
    """
    os.setgroups([])
    os.setresgid(*_NO_IDS)
    _check(_libc.prctl(_SET_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setresuid(*_NO_IDS)
    few = _SYS_CHROOT | _SYS_ADMIN
    _set_capabilities(few | _SETUID | _NET_ADMIN, few | _SETUID)
    _libc.setfsuid(0)
    _set_capabilities(few | _NET_ADMIN, few)
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))


def _ask(driver: _Driver, question: NamespaceQuestion) -> NamespaceAnswer:
    answer = NamespaceAnswer(is_disturbed=True)
    for _ in range(1 + _MORE_TRIES):
        answer = _ask_once(driver, question)
        if not answer.is_disturbed:
            break
    return answer


def _ask_once(driver: _Driver, question: NamespaceQuestion) -> NamespaceAnswer:
    result = os.memfd_create("told")
    try:
        least = driver.held(question.outer)
        child = os.fork()
        if child == 0:
            _go(driver, question, result)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            least = _combine(min, least, driver.held(question.outer))
            signal.sigtimedwait({signal.SIGCHLD}, _random.uniform(0, _PAUSE))
        least = _combine(min, least, driver.held(question.outer))
        status = os.waitstatus_to_exitcode(ended[1])
        if status != _TOLD:
            trouble = {_LATE: "no answer in time", _OVER: "it has ended"}.get(status, f"status {status}")
            return NamespaceAnswer(is_disturbed=True) if status == _DISTURBED else NamespaceAnswer(trouble=trouble)
        told = msgspec.json.decode(os.pread(result, os.fstat(result).st_size, 0), type=NamespaceAnswer)
        return NamespaceAnswer(told.most, least, trouble="" if told.most is not None else "the driver refuses")
    except msgspec.DecodeError:  # it was kept from writing
        return NamespaceAnswer(is_disturbed=True)
    finally:
        os.close(result)


def _go(driver: _Driver, question: NamespaceQuestion, result: int) -> NoReturn:
    """Have a child of ours tell what it is told within a namespace; end with what became of it."""
    status = _FAULT
    try:
        _check(_libc.setns(question.namespace, _NEW_PID))  # of the children from now on
        _check(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        driver.forget_files()
        _set_capabilities(_NET_ADMIN, 0)
        # setfsuid(2) takes back both of these.
        _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))
        _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        child = os.fork()
        if child == 0:
            _tell(driver, question, result)
        status = _wait(child)
    except OSError as error:
        # ENOMEM: its first process has ended, and with it all others (pid_namespaces(7))
        status = _OVER if error.errno == errno.ENOMEM else status
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """Say what becomes of a child: it tells, whoever it is among disturbs it, or it is late."""
    status = _wait_for(child, _PATIENCE)
    if status is None or os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        _wait_for(child, _PATIENCE)  # no longer: it may hang in the driver
        return _LATE if status is None else _DISTURBED
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _DISTURBED


def _wait_for(child: int, seconds: float) -> int | None:
    """Return the status of a child once it has ended, or is stopped; None: it does neither within some seconds."""
    until = time.monotonic() + seconds
    done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    while not done and (left := until - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)
        done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    return status if done else None


def _tell(driver: _Driver, question: NamespaceQuestion, result: int) -> NoReturn:
    """Write what is told here, and end."""
    status = _FAULT
    try:
        _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        for descriptor in (0, 1, 2, question.namespace):
            os.close(descriptor)
        answer = NamespaceAnswer(_most(driver, question.inner))
        os.write(result, msgspec.json.encode(answer))
        status = _TOLD
    finally:
        os._exit(status)


def _most(driver: _Driver, pids: Sequence[int]) -> Lists | None:
    try:
        driver.begin_anew()
        most = driver.held(pids)
        for _ in range(_FIGURES - 1):
            time.sleep(_random.uniform(0, _PAUSE))
            most = _combine(max, most, driver.held(pids))
    except (OSError, pynvml.NVMLError):  # by the driver: nobody is to blame
        return None
    return most


def _combine(choose: Callable[[int, int], int], one: Lists, other: Lists) -> dict[str, dict[int, int]]:
    """Return the larger or the smaller of each two figures; who is missing holds nothing."""
    found = {}
    for device in one.keys() | other.keys():
        rows, more = one.get(device, {}), other.get(device, {})
        found[device] = {pid: choose(rows.get(pid, 0), more.get(pid, 0)) for pid in rows.keys() | more.keys()}
    return found


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _set_capabilities(permitted: int, effective: int) -> None:
    """Have these of the first 32, and no others; capset(2)."""
    words = (ctypes.c_uint32 * 6)(effective, permitted, 0)
    _check(_libc.capset(ctypes.byref(_Header(_CAPABILITIES, 0)), words))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
