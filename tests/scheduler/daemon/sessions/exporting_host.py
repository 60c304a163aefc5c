"""Containers whose processes export memory, on a real ledger, with real epoll instances and files."""

import asyncio
import fcntl
import os
import select
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from convgpu.core import events as e
from convgpu.core.events import SlotKey
from convgpu.core.machine import Machine
from convgpu.daemon.machine_driver import MachineDriver
from convgpu.daemon.sessions.outliving import OutlivingMemory
from convgpu.policies.memory.fifo import Fifo
from convgpu.protocol.inspection.messages import Exported

GIB = 1 << 30


class Nobody:
    """Carries no effects out; whatever headroom there was is used."""

    def perform(self, effect: e.Effect) -> None:
        pass

    def take_headroom(self, slots: Sequence[SlotKey]) -> tuple[tuple[SlotKey, int], ...]:
        return tuple((slot, 0) for slot in slots)


class Host:
    """Containers `a` and `b` with 4 GiB of a device of 16; this process is each of theirs.

    Attributes:
        open: all that are to be closed.
    """

    open: ClassVar[list["Host"]] = []

    def __init__(self) -> None:
        self.open.append(self)
        self.driver = MachineDriver(
            asyncio.get_running_loop(), Machine({"gpu": 16 * GIB}, Fifo()), Nobody(), lambda: None
        )
        self.outliving = OutlivingMemory(self.driver)
        self.instance = select.epoll()
        self.exports = 0
        self.process = os.pidfd_open(os.getpid())
        for name in "ab":
            self.driver.dispatch(e.ContainerCreated(name, {"gpu": 4 * GIB}))
            self.driver.dispatch(e.ContainerStarted(name))

    @classmethod
    def close_all(cls) -> None:
        for host in cls.open:
            host.outliving.close()
            os.close(host.process)
        cls.open.clear()

    def session(self, name: str, used: int) -> Any:
        number = self.driver.next_number()
        self.driver.dispatch(e.SessionStarted(number, name, {"gpu": used}))
        facts = {"process": self.process, "pid": os.getpid(), "started": 1, "rows": ("gpu",)}
        return SimpleNamespace(number=number, container=name, **facts)

    async def tell(self, session: Any, name: int, size: int, number: int, instance: int | None = None) -> None:
        told = Exported(name, size, 0, self.instance.fileno() if instance is None else instance, number, 1)
        if not self.outliving.note(session, told):
            await self.outliving.copy(session, told)

    def export(self) -> tuple[int, int]:
        """Make a file that the instance knows; return the number by which it does, and a descriptor of it."""
        self.exports += 1
        kept = os.eventfd(0)
        number = fcntl.fcntl(kept, fcntl.F_DUPFD, 200 + self.exports)
        self.instance.register(number, 0)
        os.close(number)
        return number, kept

    def end(self, session: Any, used: int) -> None:
        kept = self.outliving.leave(session, {"gpu": used})
        self.driver.dispatch(e.SessionEnded(session.number, {}, kept))

    async def charged(self) -> list[float]:
        """GiB of both containers; what of them is known here is all of it."""
        for name in "ab":
            await self.outliving.look(name)
        self.driver.machine.check_invariants(0.0)
        accounts = [self.driver.machine.account(name, "gpu") for name in "ab"]
        charged = [account.charged if account else 0 for account in accounts]
        assert charged == [self.outliving.charged("gpu")[name] for name in "ab"]
        assert self.outliving.stays("gpu") == sum(charged)
        return [size / GIB for size in charged]


Check = Callable[[Host], Awaitable[None]]
