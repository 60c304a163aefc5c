"""One frozen dataclass per message, and how each becomes a frame body and back.

Layouts come from `wire.STRUCTS`; texts are UTF-8, cut at the field's size and NUL-padded.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from convgpu.protocol import wire
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.residency import messages as r
from convgpu.protocol.wire import Kind

# Bytes of an administrator's question: what the Engine lists is long on a host with a thousand containers.
MAX_ADMIN_FRAME: Final = 16 << 20


class MalformedMessageError(ValueError):
    """A body that is not of its kind; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A process says who it is; `held` maps device UUIDs to the bytes it uses (on reconnecting)."""

    pid: int
    program: str
    memory: str
    held: tuple[tuple[bytes, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Allocate:
    """`size` bytes of row `device` that the headroom does not hold, for the CUDA call named `call`.

    `flags`: `wire.AllocateFlag`.
    """

    device: int
    size: int
    call: str
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Freed:
    """There is headroom to take on row `device`."""

    device: int


@dataclass(frozen=True, slots=True)
class Context:
    """A context came or went on row `device`: bytes charged for contexts, and for everything else."""

    device: int
    charged: int
    used: int


@dataclass(frozen=True, slots=True)
class Query:
    """Asks for the container's usage of row `device`."""

    device: int


@dataclass(frozen=True, slots=True)
class Observe:
    """Asks, without a session, for the container's usage of a device (binary UUID). `memory` as in Hello."""

    device: bytes
    memory: str


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device of the container: binary UUID, limit and context size in bytes."""

    uuid: bytes
    limit: int
    context_size: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """The devices of the container, and the size of the page that comes along."""

    page_size: int
    devices: tuple[DeviceRow, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """`size` bytes are the asker's; `settling` bytes of the device may not be free in the driver yet."""

    size: int
    settling: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The allocation is refused; the limit of the container, and what counts in it at that moment, in bytes."""

    reason: int
    limit: int
    used: int


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What the contexts of the process take on the device by the driver's own count; 0: not known."""

    size: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Answer to Query, in bytes."""

    limit: int
    used: int
    settling: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process of the container: its pid for the asker and for the scheduler (0: not known), and bytes used."""

    pid: int
    host_pid: int
    used: int


@dataclass(frozen=True, slots=True)
class Observed:
    """Answer to Observe, in bytes; a limit of 0 says that the container has none on the device.

    `flags`: `wire.ObservedFlag`.
    """

    limit: int
    used: int
    processes: tuple[ProcessRow, ...] = ()
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection is refused; one line for the user."""

    failure: int
    text: str


@dataclass(frozen=True, slots=True)
class Admin:
    """A JSON object from an administrator."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AdminReply:
    """The JSON object that answers."""

    body: bytes = field(repr=False)


Message = (
    Hello
    | Allocate
    | Freed
    | Context
    | Query
    | Observe
    | Welcome
    | Accepted
    | Rejected
    | ContextSize
    | Usage
    | Observed
    | Failed
    | Admin
    | AdminReply
    | r.ResidencyMessage
    | i.InspectionMessage
)

_LAYOUT: Final = {name: wire.layout(name) for name in wire.STRUCTS}
KIND_OF: Final[dict[type[Message], Kind]] = {
    Hello: Kind.HELLO,
    Allocate: Kind.ALLOCATE,
    Freed: Kind.FREED,
    Context: Kind.CONTEXT,
    Query: Kind.QUERY,
    Observe: Kind.OBSERVE,
    Welcome: Kind.WELCOME,
    Accepted: Kind.ACCEPTED,
    Rejected: Kind.REJECTED,
    ContextSize: Kind.CONTEXT_SIZE,
    Usage: Kind.USAGE,
    Observed: Kind.OBSERVED,
    Failed: Kind.FAILED,
    **r.KIND_OF,
    i.Listed: Kind.LISTED,
    i.Traced: Kind.TRACED,
    i.List: Kind.LIST,
    i.Withdraw: Kind.WITHDRAW,
    i.Explained: Kind.EXPLAINED,
    i.Exported: Kind.EXPORTED,
    Admin: Kind.ADMIN,
    AdminReply: Kind.ADMIN_REPLY,
}


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _raw(text: str, size: int) -> bytes:
    """Cut to `size` - 1 bytes, without leaving half a character behind."""
    return text.encode()[: size - 1].decode("utf-8", "ignore").encode()


def _rows(name: str, body: bytes, start: int, count: int) -> list[tuple[bytes, ...]]:
    row = _LAYOUT[name]
    if len(body) != start + count * row.size:
        raise MalformedMessageError(f"{count} rows of {name} announced, {len(body) - start} bytes follow")
    return list(row.iter_unpack(body[start:]))


def _unpack_hello(body: bytes) -> Hello:
    head = _LAYOUT["hello"]
    if len(body) < head.size:
        raise MalformedMessageError(f"HELLO needs {head.size} bytes, has {len(body)}")
    pid, held_count, program, memory = head.unpack_from(body)
    held = tuple((uuid, int(size)) for uuid, size in _rows("held", body, head.size, held_count))
    return Hello(pid, _text(program), _text(memory), held)


def _unpack_welcome(body: bytes) -> Welcome:
    head = _LAYOUT["welcome"]
    if len(body) < head.size:
        raise MalformedMessageError(f"WELCOME needs {head.size} bytes, has {len(body)}")
    device_count, page_size = head.unpack_from(body)
    rows = _rows("device", body, head.size, device_count)
    return Welcome(page_size, tuple(DeviceRow(uuid, int(limit), int(size)) for uuid, limit, size in rows))


def _unpack_observed(body: bytes) -> Observed:
    head = _LAYOUT["observed"]
    if len(body) < head.size:
        raise MalformedMessageError(f"OBSERVED needs {head.size} bytes, has {len(body)}")
    limit, used, process_count, flags = head.unpack_from(body)
    rows = _rows("process", body, head.size, process_count)
    processes = tuple(ProcessRow(int(pid), int(host), int(size)) for pid, host, size in rows)
    return Observed(limit, used, processes, flags)


def _unpack_state(body: bytes) -> r.State:
    head = _LAYOUT["state"]
    if len(body) < head.size:
        raise MalformedMessageError(f"STATE needs {head.size} bytes, has {len(body)}")
    epoch, gate_open, row_count = head.unpack_from(body)
    rows = _rows("state_row", body, head.size, row_count)
    return r.State(epoch, gate_open, tuple(r.StateRow(uuid, *map(int, sizes)) for uuid, *sizes in rows))


def _unpack_listed(body: bytes) -> i.Listed:
    head = _LAYOUT["listed"]
    if len(body) < head.size:
        raise MalformedMessageError(f"LISTED needs {head.size} bytes, has {len(body)}")
    row_count, more, count, size = head.unpack_from(body)
    rows = _rows("listed_row", body, head.size, row_count)
    listed = (i.ListedRow(int(at), int(n), int(row), int(age), _text(call)) for at, n, row, age, call in rows)
    return i.Listed(more, count, size, tuple(listed))


def _fixed(name: str, make: Callable[..., Message]) -> Callable[[bytes], Message]:
    """Return the unpacker of a body without rows; `reserved` fields are left out of the dataclass."""
    packer = _LAYOUT[name]
    fields = [(c_type, field_name) for c_type, field_name, _count in wire.STRUCTS[name]]

    def unpack(body: bytes) -> Message:
        if len(body) != packer.size:
            raise MalformedMessageError(f"{name.upper()} needs {packer.size} bytes, has {len(body)}")
        values = packer.unpack(body)
        named = zip(fields, values, strict=True)
        return make(
            **{n: _text(value) if c_type == "char" else value for (c_type, n), value in named if n != "reserved"}
        )

    return unpack


_UNPACK: Final[dict[Kind, Callable[[bytes], Message]]] = {
    Kind.HELLO: _unpack_hello,
    Kind.WELCOME: _unpack_welcome,
    Kind.OBSERVED: _unpack_observed,
    Kind.STATE: _unpack_state,
    Kind.LISTED: _unpack_listed,
    Kind.ADMIN: Admin,
    Kind.ADMIN_REPLY: AdminReply,
}
# The other bodies have fields only, and are named after their kinds.
for _make, _kind in KIND_OF.items():
    if _kind not in _UNPACK:
        _UNPACK[_kind] = _fixed(_kind.name.lower(), _make)


def unpack(kind: Kind, body: bytes) -> Message:
    """Return the message in a frame body.

    Raises:
        MalformedMessageError: the body is not of that kind.
    """
    return _UNPACK[kind](body)


def _pack_fixed(name: str, message: Message | r.StateRow | i.ListedRow) -> bytes:
    values = (
        0
        if field_name == "reserved"
        else _raw(getattr(message, field_name), count)
        if c_type == "char"
        else getattr(message, field_name)
        for c_type, field_name, count in wire.STRUCTS[name]
    )
    return _LAYOUT[name].pack(*values)


def _pack_rows(name: str, rows: Iterable[r.StateRow | i.ListedRow]) -> bytes:
    return b"".join(_pack_fixed(name, row) for row in rows)


def _pack_body(message: Message) -> bytes:  # noqa: PLR0911 - a case for each message with rows
    match message:
        case Hello(pid, program, memory, held):
            head = _LAYOUT["hello"].pack(
                pid, len(held), _raw(program, wire.PROGRAM_SIZE), _raw(memory, wire.MEMORY_SIZE)
            )
            return head + b"".join(_LAYOUT["held"].pack(uuid, size) for uuid, size in held)
        case Welcome(page_size, devices):
            head = _LAYOUT["welcome"].pack(len(devices), page_size)
            rows = (_LAYOUT["device"].pack(row.uuid, row.limit, row.context_size) for row in devices)
            return head + b"".join(rows)
        case Observed(limit, used, processes, flags):
            head = _LAYOUT["observed"].pack(limit, used, len(processes), flags)
            return head + b"".join(_LAYOUT["process"].pack(row.pid, row.host_pid, row.used) for row in processes)
        case r.State(epoch, gate_open, rows):
            return _LAYOUT["state"].pack(epoch, gate_open, len(rows)) + _pack_rows("state_row", rows)
        case i.Listed(more, count, size, listed):
            return _LAYOUT["listed"].pack(len(listed), more, count, size) + _pack_rows("listed_row", listed)
        case Admin(body) | AdminReply(body):
            return body
        case _:
            return _pack_fixed(KIND_OF[type(message)].name.lower(), message)


def pack(message: Message, request: int = 0) -> bytes:
    """Return the whole frame; `request` is the header's `id`.

    Raises:
        MalformedMessageError: the frame would be longer than `wire.MAX_FRAME`, or `MAX_ADMIN_FRAME` for `Admin`.
    """
    body = _pack_body(message)
    size = _LAYOUT["header"].size + len(body)
    most = MAX_ADMIN_FRAME if isinstance(message, Admin) else wire.MAX_FRAME
    if size > most and not isinstance(message, AdminReply):  # a long listing goes to our own people
        raise MalformedMessageError(f"a frame of {size} bytes is longer than {most}")
    return _LAYOUT["header"].pack(size, wire.VERSION, KIND_OF[type(message)], request) + body
