"""A program that asks the driver from within PID namespaces what processes of them hold.

The kernel's driver compares the process of each client (its `struct pid`) with the ID that is asked about in the PID
namespace of who asks (open-gpu-kernel-modules since 565, `_gpuMatchClientPid` in src/nvidia/src/kernel/gpu/gpu_rmapi.c;
seen on a card, docs/measurements.md). So within a container's namespace an ID means a process of it, also a dead one,
whoever has that process's ID on the host by now.

A process of ours is among the container's for a millisecond each time, or some 20 where only NVML can be asked. Its
user is nobody's, it has no capability, and nobody without CAP_SYS_PTRACE may look into it: the container's root can end
or stop it, and nothing else. Who does that each time does not want it to be told what it has.

    python -m convgpu.daemon.gpu.namespace_lists LIBRARY DESCRIPTOR... <QUESTIONS
"""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

import msgspec
import pynvml

from convgpu.daemon.gpu.kernel_driver import KernelDriver
from convgpu.daemon.gpu.process_lists import listed_on, or_none

# Seconds for one answer.
_PATIENCE: Final = 0.25
# Seconds for all of them.
_MOST_PATIENCE: Final = 3.0
# Answers that are compared: who has memory can free some of it for a moment.
_ANSWERS: Final = 2
# Times more that a namespace is asked where who asks was ended: the kernel may have done it, for want of memory.
_MORE_TRIES: Final = 1
# No user has it: by it nobody may signal who asks, nor limit it (kill(2), prlimit(2)).
_NO_USER: Final = 2**31 - 2
_NEW_PID: Final = 0x20000000  # CLONE_NEWPID
_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_KEEP_CAPABILITIES, _SET_NO_NEW_PRIVILEGES = 1, 4, 8, 38  # prctl(2)
_CAPABILITIES: Final = 0x20080522  # version 3, capabilities(7)
_SETUID, _SYS_ADMIN = 1 << 7, 1 << 21
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
        most: by the inner pids, of several answers the largest; who is missing holds nothing. None: nobody knows.
        least: what all hold together who have the outer pids, before and after each answer the smallest.
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
    return msgspec.json.decode(told, type=list[NamespaceAnswer])


class _Driver:
    """Tells what processes hold, by the pids that they have for who asks; the kernel's driver does, or NVML."""

    def __init__(self, library: str) -> None:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # pynvml finds it by its soname
        pynvml.nvmlInit()
        self._kernel: KernelDriver | None = None
        self._process = os.getpid()
        minors = (or_none(pynvml.nvmlDeviceGetMinorNumber, handle) for handle in _devices())
        try:
            kernel = KernelDriver(minor for minor in minors if minor is not None)
            for uuid in kernel.devices:
                kernel.held(uuid, [self._process])
            self._kernel = kernel
        except OSError:
            pass  # NVML answers the same, and takes longer

    def held(self, pids: Sequence[int]) -> dict[str, dict[int, int]]:
        """Return the bytes by device and pid."""
        if self._kernel is not None:
            return {uuid: self._kernel.held(uuid, pids) for uuid in self._kernel.devices}
        if os.getpid() != self._process:
            pynvml.nvmlInit()  # it knows that it is in another process
        lists = {pynvml.nvmlDeviceGetUUID(handle): listed_on(handle) for handle in _devices()}
        chosen = {uuid: rows for uuid, rows in lists.items() if rows is not None}
        return {uuid: {pid: rows[pid] for pid in pids if pid in rows} for uuid, rows in chosen.items()}


def _devices() -> list[object]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def main() -> None:
    """Print what is told within each namespace, in their order, as JSON."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[NamespaceQuestion])
    _become_nobody()
    driver = _Driver(sys.argv[1])
    sys.stdout.buffer.write(msgspec.json.encode([_ask(driver, one) for one in questions]))


def _become_nobody() -> None:
    """Keep nothing of root but what enters namespaces, and what opens the driver's files (fsuid; credentials(7))."""
    _check(_libc.prctl(_SET_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setresuid(_NO_USER, _NO_USER, _NO_USER)
    _set_capabilities(_SETUID | _SYS_ADMIN)
    _libc.setfsuid(0)
    _set_capabilities(_SYS_ADMIN)
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))


def _ask(driver: _Driver, question: NamespaceQuestion) -> NamespaceAnswer:
    least, most = driver.held(question.outer), dict[str, dict[int, int]]()
    answers, disturbances = 0, 0
    while answers < _ANSWERS:
        answer = _ask_once(driver, question)
        if answer.is_disturbed and disturbances < _MORE_TRIES:
            disturbances += 1
            continue
        if answer.most is None:
            return answer
        answers += 1
        most = _combine(max, most, answer.most)
        least = _combine(min, least, driver.held(question.outer))
    return NamespaceAnswer(most, least)


def _combine(choose: Callable[[int, int], int], one: Lists, other: Lists) -> dict[str, dict[int, int]]:
    """Return the larger or the smaller of each two figures; who is missing holds nothing."""
    found = {}
    for device in one.keys() | other.keys():
        rows, more = one.get(device, {}), other.get(device, {})
        found[device] = {pid: choose(rows.get(pid, 0), more.get(pid, 0)) for pid in rows.keys() | more.keys()}
    return found


def _ask_once(driver: _Driver, question: NamespaceQuestion) -> NamespaceAnswer:
    result = os.memfd_create("told")
    try:
        _check(_libc.setns(question.namespace, _NEW_PID))  # of the children from now on
        child = os.fork()
        if child == 0:
            _tell(driver, question, result)
        status = _wait(child)
        if status is None:
            return NamespaceAnswer(trouble="no answer in time")
        if not os.WIFEXITED(status):
            return NamespaceAnswer(is_disturbed=True)
        return msgspec.json.decode(os.pread(result, os.fstat(result).st_size, 0), type=NamespaceAnswer)
    except OSError as error:
        # ENOMEM: its first process has ended, and with it all others (pid_namespaces(7))
        return NamespaceAnswer(trouble="it has ended" if error.errno == errno.ENOMEM else str(error))
    finally:
        os.close(result)


def _wait(child: int) -> int | None:
    """Return the status of a child that ends, or is stopped, and ends then; None if it is only late."""
    until = time.monotonic() + _PATIENCE
    done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    while not done and (left := until - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)
        done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
    if not done or os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return status if done else None


def _tell(driver: _Driver, question: NamespaceQuestion, result: int) -> NoReturn:
    """Write what is told here, and end."""
    try:
        _set_capabilities(0)
        # After the credentials' last change, which would take the first two back (prctl(2)).
        _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))
        _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        _check(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        answer = NamespaceAnswer(driver.held(question.inner))
    except BaseException as error:  # told to who asks
        answer = NamespaceAnswer(trouble=f"{type(error).__name__}: {error}")
    os.write(result, msgspec.json.encode(answer))
    os._exit(0)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _set_capabilities(some: int) -> None:
    """Have these, of the first 32, permitted and effective, and no others; capset(2)."""
    words = (ctypes.c_uint32 * 6)(some, some, 0)
    _check(_libc.capset(ctypes.byref(_Header(_CAPABILITIES, 0)), words))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
