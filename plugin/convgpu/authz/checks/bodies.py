"""What the Engine shows of the bodies of calls, and what it does not. Pure.

It shows JSON of less than 1 MiB. A form it reads as if it stood in the address, and shows it to nobody.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from convgpu.authz.requests import go_json
from convgpu.authz.site.strict_list import Need
from convgpu.authz.verdict import Denied, Refusal

_JSON: Final = "application/json"
_FORMS: Final = ("application/x-www-form-urlencoded", "multipart/")
_MAX_SHOWN: Final = 1 << 20  # bytes
_NULL: Final = Refusal(
    "strict-nulls", "a list says null, at which the Engine ends the call amid its work.\nLeave the null out."
)
_AWAITED: Final = Refusal(
    "body-withheld",
    "a start has no body, and the Engine may wait for this one before it begins.\n"
    "Say Content-Length: 0, or no Content-Type.",
)
# Reading JSON holds up all other threads, 1 us for each: a megabyte of lists in lists took half a second.
_MOST_LISTS: Final = 16_384
_MOST_VALUES: Final = 65_536
_TOO_MANY: Final = Refusal(
    "too-many",
    f"its body has more than {_MOST_LISTS} lists and objects, or {_MOST_VALUES} values.\nMake it smaller.",
)
_NOT_SHOWN: Final = "the Engine does not show what is asked for, so it may be a GPU without a limit.\n"


def withheld(headers: Mapping[str, str]) -> Refusal:
    """Return the refusal of a call whose body is not shown, with the reason as far as its headers tell.

    Args:
        headers: by their names in lower case.
    """
    kind, length = _kind(headers), headers.get("content-length", "")
    if kind and kind != _JSON:
        text = f"It shows no body of the type {kind:.80}: send it with Content-Type: {_JSON}."
    elif length.isdecimal() and int(length[:12]) < _MAX_SHOWN:
        text = f"The call says that it has {int(length[:12])} bytes, and shows none: send one Content-Type: {_JSON}."
    else:
        text = "It withholds a body of more than 1 MiB"
        text += "" if length else ", or of a length that is not said (Content-Length)"
        text += "; make the request smaller and repeat it."
    return Refusal("body-withheld", _NOT_SHOWN + text)


def refuse_hidden(headers: Mapping[str, str], body: bytes, *, streams: bool) -> None:
    """Refuse a call that has a body of which the Engine shows nothing.

    Of several headers of one name the Engine reads the first and shows the last, so the type that is shown need not be
    the one that counts, and the body may be a form.

    Args:
        headers: by their names in lower case.
        body: as far as it is shown.
        streams: the call has such a body by its nature.

    Raises:
        Denied: it has one.
    """
    if _has_body(headers) and not body and not streams and not _kind(headers).startswith(_FORMS):
        raise Denied(withheld(headers))


def refuse_awaited(headers: Mapping[str, str], body: bytes, *, is_strict: bool) -> None:
    """Refuse a start that has a body of which the Engine shows nothing; where rules are strict, one that may have it.

    That is one with a type and no length: it may come in pieces, of which the Engine shows nothing. Some honest clients
    send their starts so, without a body (decision 226).

    It reads a form before it begins to start, holds nothing meanwhile, and waits for one as long as its caller likes:
    nobody could tell such a start from one that is over. The type that is shown need not be the one that counts.

    Args:
        headers: by their names in lower case.
        body: as far as it is shown.
        is_strict: the rules are.

    Raises:
        Denied: it has one, or may.
    """
    if _has_body(headers) and not body and (is_strict or "content-length" in headers):
        raise Denied(_AWAITED)


def refuse_unreadable(body: bytes, query: Mapping[str, Sequence[str]]) -> None:
    """Refuse a call whose body would take long to read, for which all others wait, and one with a null in a list.

    Raises:
        Denied: it is one.
    """
    if body.count(b"[") + body.count(b"{") > _MOST_LISTS or body.count(b",") > _MOST_VALUES:
        raise Denied(_TOO_MANY)
    refuse_nulls(body, query)


def refuse_nulls(body: bytes, query: Mapping[str, Sequence[str]]) -> None:
    """Refuse a call that says null in a list, as no program of Docker's does.

    The Engine makes such a container, and ends the call amid its work when it reads the null: the container's lock is
    held from then on (28.5, `Ulimits` in `mergeUlimits`), so each call about it waits for ever, and keeps a descriptor
    of the Engine's.

    Args:
        body: as far as it is shown.
        query: of the call; a build has lists there.

    Raises:
        Denied: it says so.
    """
    shown: list[str | bytes] = [text for texts in query.values() for text in texts if "null" in text]
    if b"null" in body:
        shown.append(body)
    for raw in shown:
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError):
            continue  # who reads it says so
        if go_json.has_null_in_list(document):
            raise Denied(_NULL)


def unseen(headers: Mapping[str, str]) -> Iterator[Need]:
    """Return what a call needs for a form as its body."""
    kind = _kind(headers)
    if kind.startswith(_FORMS):
        yield Need("calls", "forms", f"a body of the type {kind:.80}, which the Engine shows nobody,")


def _has_body(headers: Mapping[str, str]) -> bool:
    """Tell whether a call may have a body that the Engine reads; without a type it is no form."""
    return "content-type" in headers and headers.get("content-length") != "0"


def _kind(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()
