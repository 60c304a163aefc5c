"""Docker's plugin wire: paths, requests and replies, decoded and encoded. No behaviour.

The Engine sends no Content-Type, and it sends an empty body when it tries a call again after a lost connection
(the first attempt has consumed it). So no field of a request has a default: without it the request is `Malformed`.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

CONTENT_TYPE: Final = "application/vnd.docker.plugins.v1.1+json"

ACTIVATE: Final = "/Plugin.Activate"
CREATE: Final = "/VolumeDriver.Create"
REMOVE: Final = "/VolumeDriver.Remove"
MOUNT: Final = "/VolumeDriver.Mount"
UNMOUNT: Final = "/VolumeDriver.Unmount"
PATH: Final = "/VolumeDriver.Path"
GET: Final = "/VolumeDriver.Get"
LIST: Final = "/VolumeDriver.List"
CAPABILITIES: Final = "/VolumeDriver.Capabilities"
AUTHORIZE_REQUEST: Final = "/AuthZPlugin.AuthZReq"
AUTHORIZE_RESPONSE: Final = "/AuthZPlugin.AuthZRes"

EMPTY_BODY: Final = (
    "the Engine sent a request without a body, as it does when it tries again after a lost connection; "
    "nothing was changed, please repeat the command"
)


class Malformed(ValueError):  # noqa: N818 - the state of a request
    """A request that is not of this wire; the text is for the user."""


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """`VolumeDriver.Create`: the options are as the user wrote them."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NameRequest:
    """`VolumeDriver.Remove`, `Path` and `Get`."""

    name: str


@dataclass(frozen=True, slots=True)
class MountRequest:
    """`VolumeDriver.Mount` and `Unmount`; `id` is the Engine's name for this use of the volume."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """`AuthZPlugin.AuthZReq`: one call of the Engine's API before it is carried out.

    Attributes:
        method: HTTP method.
        uri: as the client sent it: raw, maybe percent-encoded, maybe in absolute form.
        encoded_body: base64; empty when the call has no body or the Engine keeps it back.
        user: the common name of the client's certificate; empty without one, as on the Engine's UNIX socket.
        user_method: how the Engine knows the user: `TLS`, even by a certificate without a common name; else empty.
        headers: of the call, by their names in lower case; of several of one name the Engine shows the last.
        status: of its answer; 0 before there is one.
        encoded_answer: base64, of a call that was carried out; empty when the Engine keeps it back.
    """

    method: str
    uri: str
    encoded_body: str
    user: str = ""
    user_method: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    encoded_answer: str = ""

    def body(self) -> bytes:
        """Return the body of the call.

        Raises:
            Malformed: it is not base64.
        """
        return _base64(self.encoded_body, "RequestBody")

    def answer(self) -> bytes:
        """Return the body of the Engine's answer.

        Raises:
            Malformed: it is not base64.
        """
        return _base64(self.encoded_answer, "ResponseBody")


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as `docker volume inspect` shows it; `created_at` is RFC 3339."""

    name: str
    mountpoint: str
    created_at: str
    status: Mapping[str, object]


def decode_create(raw: bytes) -> CreateRequest:
    """Decode the body of `VolumeDriver.Create`."""
    document = _document(raw)
    options = document.get("Opts")
    if options is None:
        options = {}
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise Malformed("Opts must be a map of text to text")
    return CreateRequest(_text(document, "Name"), options)


def decode_name(raw: bytes) -> NameRequest:
    """Decode the body of `VolumeDriver.Remove`, `Path` or `Get`."""
    return NameRequest(_text(_document(raw), "Name"))


def decode_mount(raw: bytes) -> MountRequest:
    """Decode the body of `VolumeDriver.Mount` or `Unmount`."""
    document = _document(raw)
    return MountRequest(_text(document, "Name"), _text(document, "ID"))


def decode_authorization(raw: bytes) -> AuthorizationRequest:
    """Decode the body of `AuthZPlugin.AuthZReq`; the inner body stays as it is until somebody needs it."""
    document = _document(raw)
    encoded_body, encoded_answer = document.get("RequestBody") or "", document.get("ResponseBody") or ""
    if not isinstance(encoded_body, str):
        raise Malformed("RequestBody must be text")
    if not isinstance(encoded_answer, str):
        raise Malformed("ResponseBody must be text")
    headers, status = document.get("RequestHeaders") or {}, document.get("ResponseStatusCode") or 0
    if not isinstance(headers, dict) or not isinstance(status, int):
        raise Malformed("RequestHeaders must be an object, ResponseStatusCode a number")
    user, user_method = document.get("User") or "", document.get("UserAuthNMethod") or ""
    if not isinstance(user, str) or not isinstance(user_method, str):
        raise Malformed("User and UserAuthNMethod must be text")
    method, uri = _text(document, "RequestMethod"), _text(document, "RequestUri")
    shown = {name.lower(): str(value) for name, value in headers.items()}
    return AuthorizationRequest(method, uri, encoded_body, user, user_method, shown, status, encoded_answer)


def encode_activated() -> bytes:
    """Encode what this plugin implements."""
    return _encode({"Implements": ["VolumeDriver", "authz"]})


def encode_done() -> bytes:
    """Encode the answer of a call that returns nothing."""
    return _encode({"Err": ""})


def encode_error(text: str) -> bytes:
    """Encode a failure; the Engine shows the text behind the name of the call."""
    return _encode({"Err": text})


def encode_mountpoint(path: str) -> bytes:
    """Encode the answer of `Mount` and `Path`."""
    return _encode({"Mountpoint": path, "Err": ""})


def encode_volume(volume: Volume) -> bytes:
    """Encode the answer of `Get`."""
    return _encode({"Volume": _volume(volume), "Err": ""})


def encode_volumes(volumes: Sequence[Volume]) -> bytes:
    """Encode the answer of `List`."""
    return _encode({"Volumes": [_volume(volume) for volume in volumes], "Err": ""})


def encode_capabilities(scope: str) -> bytes:
    """Encode the answer of `Capabilities`."""
    return _encode({"Capabilities": {"Scope": scope}})


def encode_authorization(*, allow: bool, message: str) -> bytes:
    """Encode the answer of `AuthZReq` and `AuthZRes`; the message of a denial reaches the user."""
    return _encode({"Allow": allow, "Msg": message})


def _document(raw: bytes) -> dict[str, object]:
    if not raw:
        raise Malformed(EMPTY_BODY)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the request is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Malformed("the request is not a JSON object")
    return document


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"{name} is not base64: {error}") from error


def _text(document: Mapping[str, object], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise Malformed(f"the request names no {key}")
    return value


def _volume(volume: Volume) -> dict[str, object]:
    return {
        "Name": volume.name,
        "Mountpoint": volume.mountpoint,
        "CreatedAt": volume.created_at,
        "Status": dict(volume.status),
    }


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document).encode()
