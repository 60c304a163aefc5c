"""A program that asks the driver from within PID namespaces what processes of them hold.

The kernel's driver compares the process of each client (its `struct pid`) with the ID that is asked about in the PID
namespace of who asks (open-gpu-kernel-modules since 565, `_gpuMatchClientPid` in src/nvidia/src/kernel/gpu/gpu_rmapi.c;
seen on a card, docs/measurements.md). So within a container's namespace an ID means a process of it, also a dead one,
whoever has that process's ID on the host by now.

A process of ours is among the container's for as long as it is asked about. One that came for each question would be
seen coming, 2 ms before the first figure: a program frees gigabytes in that time, and takes them again afterwards (on
an H100 4 GiB in 1.6 ms, docs/measurements.md). One that is there answers in a tenth of a millisecond. It has no
capability from its first moment on, and user and group IDs of which no two are the same, so that nobody who took one
of them may limit it (prlimit(2) wants all three). Nobody without CAP_SYS_PTRACE may look into it, and who may finds no
files but the driver's, unless only NVML can be asked. The container's root can end or stop it. Who does that each time
does not want it to be told what it has.

    python -m convgpu.daemon.gpu.namespace_program LIBRARY, with a socket for its standard input (`namespace_lists`)
"""

import ctypes
import errno
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import Final, NoReturn

import msgspec
import pynvml

from convgpu.daemon.gpu.namespace_driver import NamespaceDriver, combine
from convgpu.daemon.gpu.namespace_lists import NO_IDS, OVER, Lists, NamespaceAnswer, NamespaceQuestion, receive, send

# Seconds for one answer, and for one with a search (see `namespace_driver`).
_PATIENCE: Final = 0.25
_SEARCHING: Final = 4.0
# Seconds after which no more are asked.
_MOST_SECONDS: Final = 1.5
# Bytes of one question.
_MOST_BYTES: Final = 1 << 20
_QUESTIONS: Final = msgspec.json.Decoder(list[NamespaceQuestion])
_ANSWER: Final = msgspec.json.Decoder(NamespaceAnswer)
# Figures that are compared, and the seconds between them at most, at random: who has memory can free it for a moment.
_FIGURES: Final = 4
_PAUSE: Final = 0.002
# Times in a row that who asks may have been ended: the kernel may have done it, for want of memory.
_EXCUSED: Final = 1
_NEW_PID: Final = 0x20000000  # CLONE_NEWPID
_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_KEEP_CAPABILITIES, _SET_NO_NEW_PRIVILEGES = 1, 4, 8, 38  # prctl(2)
_OPEN_TREE: Final = 428  # open_tree(2), since Linux 5.2; the number on all processors that have CUDA
_CAPABILITIES: Final = 0x20080522  # version 3, capabilities(7)
_SETUID, _NET_ADMIN, _SYS_CHROOT, _SYS_ADMIN = 1 << 7, 1 << 12, 1 << 18, 1 << 21
# How one that asked there ended, by the status of its parent.
_TOLD, _DISTURBED, _OVER, _FAULT = range(4)
_random: Final = SystemRandom()
_libc: Final = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Answer what is asked by the socket, in the order of the questions and as far as there is time, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nowhere = _make_nowhere()
    _become_nobody()
    residents = _Residents(NamespaceDriver(sys.argv[1], nowhere))
    with socket.socket(fileno=0) as channel, suppress(ConnectionError):
        while True:
            data, descriptors = receive(channel)
            answers = residents.answer(_QUESTIONS.decode(data), descriptors)
            send(channel, msgspec.json.encode(answers))


class _Residents:
    """Who is there within namespaces.

    Args:
        driver: tells.
    """

    def __init__(self, driver: NamespaceDriver) -> None:
        self._driver = driver
        self._there: dict[int, _Resident] = {}  # by the inode of the namespace
        self._ends: dict[int, int] = {}  # questions in a row before which one was ended there, likewise

    def answer(self, questions: Sequence[NamespaceQuestion], namespaces: Sequence[int]) -> list[NamespaceAnswer]:
        """Answer as many questions as there is time for, until one asks about nobody; who is named no more, leaves.

        Args:
            questions: one for each namespace.
            namespaces: descriptors; they are closed.
        """
        there = {os.fstat(one).st_ino: one for one in namespaces}
        for inode in self._there.keys() - there.keys():
            self._there.pop(inode).leave()
        self._ends = {inode: count for inode, count in self._ends.items() if inode in there}
        fresh = there.keys() - self._there.keys()
        for inode in fresh:
            self._come(inode, there)
        answers, until = [], time.monotonic() + _MOST_SECONDS
        for question, inode in zip(questions, there, strict=True):
            if time.monotonic() > until or not (question.inner or question.search):
                break
            # Who comes is seen coming: what it would be told now, could be away for that moment.
            answers.append(NamespaceAnswer(has_come=True) if inode in fresh else self._ask(question, inode, there))
        for one in namespaces:
            os.close(one)
        return answers

    def _come(self, inode: int, namespaces: Mapping[int, int]) -> None:
        others = (number for one in self._there.values() for number in one.descriptors)
        unneeded = {0, 1, 2, *namespaces.values(), *others}
        self._there[inode] = _Resident(self._driver, namespaces[inode], unneeded)

    def _ask(self, question: NamespaceQuestion, inode: int, namespaces: Mapping[int, int]) -> NamespaceAnswer:
        answer = self._there[inode].ask(question)
        if not (answer.is_disturbed or answer.trouble):
            self._ends.pop(inode, None)
            return answer
        self._there.pop(inode).leave()
        if answer.trouble == OVER:
            self._ends.pop(inode, None)
        if not answer.is_disturbed:
            return answer
        self._ends[inode] = self._ends.get(inode, 0) + 1
        self._come(inode, namespaces)
        return answer if self._ends[inode] > _EXCUSED else NamespaceAnswer(has_come=True)


class _Resident:
    """A process of ours within a namespace, and its parent outside, which knows what becomes of it.

    It keeps the namespace's inode, too: else the kernel would give it to another one, which would be taken for this.

    Args:
        driver: tells.
        namespace: descriptor; it gets one of its own.
        unneeded: descriptors that it has not.
    """

    def __init__(self, driver: NamespaceDriver, namespace: int, unneeded: Iterable[int]) -> None:
        self._driver = driver
        self._namespace = os.dup(namespace)
        self._told = os.memfd_create("told")
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._parent = os.fork()
            if self._parent == 0:
                for one in (*unneeded, self._channel.fileno()):
                    os.close(one)
                _go(driver, self._namespace, theirs, self._told)

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """Those that another process of ours has not to have: each ends when the channel is closed."""
        return self._namespace, self._told, self._channel.fileno()

    def ask(self, question: NamespaceQuestion) -> NamespaceAnswer:
        """Return what is told there, and what is told here meanwhile."""
        try:
            return self._ask(question)
        except (OSError, pynvml.NVMLError) as error:  # of the driver
            return NamespaceAnswer(trouble=str(error))

    def _ask(self, question: NamespaceQuestion) -> NamespaceAnswer:
        driver, until = self._driver, time.monotonic() + (_SEARCHING if question.search else _PATIENCE)
        least = driver.held(question.outer)
        with suppress(OSError):  # it has ended: so says what follows
            self._channel.send(msgspec.json.encode((question.inner, question.search, question.first)))
        while not select.select([self._channel], [], [], _random.uniform(0, _PAUSE))[0]:
            least = combine(min, least, driver.held(question.outer))
            if time.monotonic() > until:
                return NamespaceAnswer(trouble="no answer in time")
        least = combine(min, least, driver.held(question.outer))
        try:
            told = self._channel.recv(_MOST_BYTES)
        except ConnectionError:  # it ended before it took the question
            told = b""
        if not told:
            return self._end()
        try:
            answer = _ANSWER.decode(os.pread(self._told, int(told), 0))
        except (ValueError, msgspec.DecodeError):  # it was kept from writing
            return NamespaceAnswer(is_disturbed=True)
        trouble = "" if answer.most is not None else "the driver refuses"
        return NamespaceAnswer(answer.most, least, trouble=trouble, searched=answer.searched)

    def _end(self) -> NamespaceAnswer:
        """Say how it ended."""
        status = _wait_for(self._parent, _PATIENCE)
        code = os.waitstatus_to_exitcode(status) if status is not None else _FAULT
        self._parent = 0 if status is not None else self._parent
        if code == _DISTURBED:
            return NamespaceAnswer(is_disturbed=True)
        return NamespaceAnswer(trouble=OVER if code == _OVER else f"status {code}")

    def leave(self) -> None:
        """Have it end; if it hangs in the driver, nobody waits for it."""
        self._channel.close()
        os.close(self._told)
        os.close(self._namespace)
        if self._parent and _wait_for(self._parent, _PATIENCE) is None:
            os.kill(self._parent, signal.SIGKILL)
            _wait_for(self._parent, _PATIENCE)


def _make_nowhere() -> int:
    """Return a descriptor of a folder in which nothing is, and above which nothing is: a mount that is mounted nowhere.

    A folder that was removed still has the one above it: `/proc/PID/root/..` would lead to our files.
    """
    folder = tempfile.mkdtemp()
    try:
        nowhere = int(_libc.syscall(_OPEN_TREE, -1, folder.encode(), 1 | os.O_CLOEXEC))  # OPEN_TREE_CLONE
    finally:
        Path(folder).rmdir()
    if nowhere < 0:
        raise OSError(ctypes.get_errno(), f"open_tree(2): {os.strerror(ctypes.get_errno())}")
    return nowhere


def _become_nobody() -> None:
    """Keep nothing of root but what enters namespaces, and what opens the driver's files (fsuid; credentials(7)).

    CAP_NET_ADMIN is kept without being in force: nobody without it may make us wait (sched_setscheduler(2)).
    """
    os.setgroups([])
    os.setresgid(*NO_IDS)
    _check(_libc.prctl(_SET_KEEP_CAPABILITIES, 1, 0, 0, 0))
    os.setresuid(*NO_IDS)
    few = _SYS_CHROOT | _SYS_ADMIN
    _set_capabilities(few | _SETUID | _NET_ADMIN, few | _SETUID)
    _libc.setfsuid(0)
    _set_capabilities(few | _NET_ADMIN, few)
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))


def _go(driver: NamespaceDriver, namespace: int, channel: socket.socket, result: int) -> NoReturn:
    """Have a child of ours tell what it is told within a namespace; end with what became of it."""
    status = _FAULT
    try:
        os.setsid()  # /proc/PID/autogroup is its session's
        _check(_libc.setns(namespace, _NEW_PID))  # of the children from now on
        os.close(namespace)
        _check(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        driver.forget_files()
        _set_capabilities(_NET_ADMIN, 0)
        # setfsuid(2) takes back both of these.
        _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))
        _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        child = os.fork()
        if child == 0:
            _tell(driver, channel, result)
        channel.close()
        status = _wait(child)
        if status == _DISTURBED:  # or the namespace has ended, and with it whoever was there: then nobody can come
            if (another := os.fork()) == 0:
                os._exit(_TOLD)
            os.kill(another, signal.SIGKILL)  # it could be stopped there
            os.waitpid(another, 0)
    except OSError as error:
        # ENOMEM: its first process has ended, and with it all others (pid_namespaces(7))
        status = _OVER if error.errno == errno.ENOMEM else status
    finally:
        os._exit(status)


def _wait(child: int) -> int:
    """Say what becomes of a child: it leaves, or whoever it is among ends or stops it."""
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _DISTURBED


def _wait_for(child: int, seconds: float) -> int | None:
    """Return the status of a child that has ended; None: it does not within some seconds."""
    until = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE)
    return ended[1]


def _tell(driver: NamespaceDriver, channel: socket.socket, result: int) -> NoReturn:
    """Write what is told here whenever that is asked, and end with who asks."""
    status = _FAULT
    try:
        _check(_libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
        driver.begin_anew()
        question, pids, search, first = b"", list[int](), 0, 0
        while asked := channel.recv(_MOST_BYTES):
            if asked != question:
                question, (pids, search, first) = asked, msgspec.json.decode(asked, type=tuple[list[int], int, int])
            told = msgspec.json.encode(_answer(driver, pids, search, first))
            os.pwrite(result, told, 0)
            channel.send(str(len(told)).encode())
        status = _TOLD
    finally:
        os._exit(status)


def _answer(driver: NamespaceDriver, pids: Sequence[int], search: int, first: int) -> NamespaceAnswer:
    """Return what these pids hold, and as many of those below `search` as there is time for, from the first on."""
    found: Lists = {}
    searched = 0
    try:
        most = driver.held(pids)  # at once: from now on it can be seen that we are awake
        if search:
            # Who was found counts with what it had then: it may have seen us by now.
            found, searched = driver.search(search, first)
            most, pids = combine(max, most, found), sorted({*pids, *(pid for rows in found.values() for pid in rows)})
        for _ in range(_FIGURES - 1):
            time.sleep(_random.uniform(0, _PAUSE))
            most = combine(max, most, driver.held(pids))
    except (OSError, pynvml.NVMLError):  # by the driver: nobody is to blame
        return NamespaceAnswer()
    return NamespaceAnswer(most, searched=searched)


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
