import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convgpu.protocol import messages as m
from convgpu.protocol import wire
from convgpu.protocol.inspection import messages as i
from convgpu.protocol.messages import Message, pack
from convgpu.protocol.residency import messages as r
from convgpu.protocol.stream import MessageStream, ProtocolError
from convgpu.protocol.wire import Failure, Kind

EVERY_MESSAGE: list[Message] = [
    m.Hello(42, "python3", "2g", ((b"u" * 16, 7), (b"v" * 16, 1 << 40))),
    m.Hello(1, "", ""),
    m.Allocate(3, 2 << 30, "cuMemAlloc"),
    m.Freed(1),
    m.Context(0, 526 << 20, 1),
    m.Query(2),
    m.Observe(b"x" * 16, "2g"),
    m.Welcome(4096, (m.DeviceRow(b"w" * 16, 2 << 30, 526 << 20),)),
    m.Accepted(5, 6),
    m.Rejected(1, 2, 3),
    m.ContextSize(9),
    m.Usage(1, 2, 3),
    m.Observed(1, 2, (m.ProcessRow(7, 1007, 3), m.ProcessRow(8, 0, 4))),
    m.Observed(0, 0),
    r.Able(2, 3),
    r.Run(4),
    r.Stopped(5, 1, 6, 7_000),
    r.Evicted(5, 1, 64 << 20),
    r.Restored(5, 1, 64 << 20, 2),
    r.State(5, 0, (r.StateRow(b"y" * 16, 1, 2, 3), r.StateRow(b"z" * 16, 4, 5, 6))),
    r.State(0, 1),
    r.Carrier(1),
    r.Stop(6, 2_000),
    r.Step(6, 1),
    r.Evict(6, 1, 40 << 30),
    r.Restore(6, 1, 40 << 30),
    r.Go(7),
    r.Idle(1, 8_000),
    r.Watch(1),
    i.List(100),
    i.Listed(1, 3, 4_096, (i.ListedRow(1 << 40, 4_096, 0, i.UNKNOWN, "cuMemAlloc"),)),
    i.Listed(0, 0, 0),
    i.Traced(1, 4_096, "cuMemAlloc"),
    i.Withdraw(),
    i.Explained("cuMemAlloc waits for 2GiB of GPU 0"),
    i.Exported(1 << 63, 1 << 40, 1, 960, 512, 3),
    m.Failed(2, "what to do: grüße"),
    m.Admin(b'{"op": "devices"}'),
    m.AdminReply(b"{}" * 100_000),
]


def test_every_kind_is_among_the_examples() -> None:
    assert {m.KIND_OF[type(message)] for message in EVERY_MESSAGE} == set(Kind)


@given(st.data())
def test_messages_survive_any_cutting_of_the_bytes(data: st.DataObject) -> None:
    sent = [(number, message) for number, message in enumerate(EVERY_MESSAGE)]
    raw = b"".join(pack(message, number) for number, message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = MessageStream(max_frame=1 << 20)
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        received += stream.receive(raw[start:end])
    assert received == sent


def header(size: int = 24, version: int = wire.VERSION, kind: int = Kind.QUERY, request: int = 5) -> bytes:
    return struct.pack("=IHHQ", size, version, kind, request)


@pytest.mark.parametrize(
    ("raw", "failure", "text"),
    [
        (header(version=1), Failure.VERSION, "protocol version 1, this scheduler speaks 2: restart the container"),
        (header(version=3), Failure.VERSION, "protocol version 3"),
        (header(version=0), Failure.VERSION, "restart the container"),
        (header(size=15), Failure.MALFORMED, "a frame of 15 bytes"),
        (header(size=0), Failure.MALFORMED, "a frame of 0 bytes"),
        (header(size=wire.MAX_FRAME + 1), Failure.MALFORMED, "a frame of 65537 bytes"),
        (header(kind=999), Failure.MALFORMED, "unknown kind 999"),
        (header(size=25) + b"x" * 9, Failure.MALFORMED, "QUERY needs 8 bytes, has 9"),
        (header(size=16 + 104, kind=Kind.HELLO) + b"\xff" * 104, Failure.MALFORMED, "rows of held announced"),
        (header(size=20, kind=Kind.HELLO) + b"\0" * 4, Failure.MALFORMED, "HELLO needs 104 bytes"),
    ],
)
def test_what_is_not_of_this_protocol(raw: bytes, failure: Failure, text: str) -> None:
    with pytest.raises(ProtocolError, match=text) as caught:
        MessageStream().receive(raw)
    assert (caught.value.failure, caught.value.request) == (failure, 5)


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_else(noise: bytes) -> None:
    try:
        MessageStream().receive(noise)
    except ProtocolError:
        return


@given(st.lists(st.sampled_from(EVERY_MESSAGE), max_size=6), st.data())
def test_damaged_frames_are_told_alike_however_they_are_cut_and_hold_no_memory(
    sent: list[Message], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(pack(message, number) for number, message in enumerate(sent)))
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        place = data.draw(st.integers(0, len(raw) - 1))
        dirt = data.draw(st.binary(max_size=8))
        raw[place : place + data.draw(st.integers(0, 8))] = dirt
    step = data.draw(st.sampled_from([1, 7, 1000, 65536]))
    whole, bits = read(bytes(raw), len(raw) + 1), read(bytes(raw), step if len(raw) < 5000 else max(step, 1000))
    assert whole == bits


def read(raw: bytes, step: int) -> tuple[list[tuple[int, Message]], str]:
    stream, received = MessageStream(), []
    try:
        for start in range(0, len(raw), step):
            received += stream.receive(raw[start : start + step])
            assert len(stream._bytes) <= wire.MAX_FRAME + step
    except ProtocolError as error:
        return [], str(error)
    return received, ""


def test_texts_are_cut_at_the_size_of_their_field_without_half_a_character() -> None:
    [(_, message)] = MessageStream().receive(pack(m.Hello(1, "ü" * 40, "")))
    assert message == m.Hello(1, "ü" * 15, "")
